"""The transports that the shared tests run over. A new one joins with a line in KINDS."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kvtransfer.transports.base import ReadGate, Transport, TransportServer
from kvtransfer.transports.mooncake import MooncakeTransport
from kvtransfer.transports.mooncake_server import MooncakeServer
from kvtransfer.transports.shm import ShmTransport
from kvtransfer.transports.shm_server import ShmServer
from kvtransfer.transports.tcp import TcpTransport
from kvtransfer.transports.tcp_server import TcpServer, parse_address

READ_SECONDS = 2.0
HELLO_SECONDS = 0.5
CONNECT_SECONDS = 1.0


class Serve(Protocol):
    """Starts a server whose files are in a folder; at `address`, that of an earlier server, unless it is empty."""

    def __call__(self, gate: ReadGate, folder: Path, address: str) -> TransportServer: ...


@dataclass(frozen=True)
class Kind:
    """How to make both sides of a transport with the bounds above.

    `keeps_sockets`: an engine that outlives both sides keeps some connections for the next, as many as it sees fit.
    """

    name: str
    serve: Serve
    connect: Callable[[str], Transport]
    keeps_sockets: bool = False

    def __str__(self) -> str:
        return self.name


def _serve_shm(gate: ReadGate, folder: Path, address: str) -> TransportServer:
    path = Path(address or folder / "shm.sock")
    return ShmServer(gate, path, read_seconds=READ_SECONDS, hello_seconds=HELLO_SECONDS)


def _serve_tcp(gate: ReadGate, folder: Path, address: str) -> TransportServer:
    port = parse_address(address)[1] if address else 0
    return TcpServer(gate, "127.0.0.1", port=port, read_seconds=READ_SECONDS, hello_seconds=HELLO_SECONDS)


def _serve_mooncake(gate: ReadGate, folder: Path, address: str) -> TransportServer:
    port = parse_address(address)[1] if address else 0
    seconds = READ_SECONDS * 5  # its engine needs them for a gibibyte
    return MooncakeServer(gate, "127.0.0.1", port=port, read_seconds=seconds, hello_seconds=HELLO_SECONDS)


def _connect_shm(address: str) -> Transport:
    return ShmTransport(address, connect_seconds=CONNECT_SECONDS)


def _connect_tcp(address: str) -> Transport:
    return TcpTransport(address, connect_seconds=CONNECT_SECONDS)


def _connect_mooncake(address: str) -> Transport:
    return MooncakeTransport(address, connect_seconds=CONNECT_SECONDS)


KINDS = [
    Kind("shm", _serve_shm, _connect_shm),
    Kind("tcp", _serve_tcp, _connect_tcp),
    Kind("mooncake", _serve_mooncake, _connect_mooncake, keeps_sockets=True),
]

NAMES = [kind.name for kind in KINDS]


def kind_named(name: str) -> Kind:
    """The one of this name."""
    return next(kind for kind in KINDS if kind.name == name)
