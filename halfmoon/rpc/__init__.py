"""gRPC as every program uses it: server, channels, errors on the wire, and the agent that registers a worker."""

from halfmoon.rpc.cachefeed import CacheFeed
from halfmoon.rpc.channel import open_channel
from halfmoon.rpc.registration import RegistrationAgent, WorkerReport
from halfmoon.rpc.server import GrpcServer
from halfmoon.rpc.status import error_from_rpc, status_from_error

__all__ = [
    "CacheFeed",
    "GrpcServer",
    "RegistrationAgent",
    "WorkerReport",
    "error_from_rpc",
    "open_channel",
    "status_from_error",
]
