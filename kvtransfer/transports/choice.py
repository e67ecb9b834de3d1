"""Making the transports that a peer offers; which of them is taken is said by `kvtransfer.core.transport_choice`."""

from collections.abc import Iterable
from pathlib import Path

from halfmoon.errors import IncompatibleError
from halfmoon.v1 import kvtransfer_pb2 as pb
from kvtransfer.transports.base import Transport
from kvtransfer.transports.mooncake import MooncakeTransport
from kvtransfer.transports.mooncake_engine import why_missing
from kvtransfer.transports.shm import ShmTransport
from kvtransfer.transports.tcp import TcpTransport


def can_speak(name: str) -> bool:
    """Whether this process has what a transport needs."""
    return name != "mooncake" or not why_missing()


def usable(endpoints: Iterable[pb.TransportEndpoint]) -> list[pb.TransportEndpoint]:
    """Those that can be used from here, in order. Raises IncompatibleError when there is none."""
    offered = list(endpoints)
    obstacles = [_obstacle(endpoint) for endpoint in offered]
    found = [endpoint for endpoint, obstacle in zip(offered, obstacles, strict=True) if not obstacle]
    if not found:
        raise IncompatibleError(
            f"no common transport; the owner offers {[endpoint.name for endpoint in offered]}: {'; '.join(obstacles)}"
        )
    return found


def open_transport(endpoint: pb.TransportEndpoint, *, connect_seconds: float, host: str) -> Transport:
    """For a usable one; it connects when it is read from. `host` is what peers call this machine."""
    if endpoint.name == "mooncake":
        return MooncakeTransport(endpoint.address, connect_seconds=connect_seconds, host=host)
    made = ShmTransport if endpoint.name == "shm" else TcpTransport
    return made(endpoint.address, connect_seconds=connect_seconds)


def _obstacle(endpoint: pb.TransportEndpoint) -> str:
    """Why it cannot be used; empty when it can. A peer in another container offers a socket that is not there."""
    if endpoint.name == "shm":
        return "" if Path(endpoint.address).is_socket() else f"shm's socket {endpoint.address} is not here"
    if endpoint.name in {"tcp", "mooncake"}:
        return ""
    return f"{endpoint.name} is unknown"
