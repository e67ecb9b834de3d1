"""Which transport a reader takes of those that its peer offers."""

from collections.abc import Iterable
from pathlib import Path

from halfmoon.errors import IncompatibleError
from halfmoon.v1 import kvtransfer_pb2 as pb
from kvtransfer.transports.base import Transport
from kvtransfer.transports.mooncake import MooncakeTransport
from kvtransfer.transports.shm import ShmTransport
from kvtransfer.transports.tcp import TcpTransport


def open_transport(endpoints: Iterable[pb.TransportEndpoint], *, connect_seconds: float) -> Transport:
    """The first usable one. A peer in another container of the same machine offers a socket that is not there.

    Raises IncompatibleError when there is none.
    """
    offered = list(endpoints)
    for endpoint in offered:
        if endpoint.name == "tcp":
            return TcpTransport(endpoint.address, connect_seconds=connect_seconds)
        if endpoint.name == "mooncake":
            return MooncakeTransport(endpoint.address, connect_seconds=connect_seconds)
        if endpoint.name == "shm" and Path(endpoint.address).is_socket():
            return ShmTransport(endpoint.address, connect_seconds=connect_seconds)
    raise IncompatibleError(f"no common transport; the owner offers {[endpoint.name for endpoint in offered]}")
