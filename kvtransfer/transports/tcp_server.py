"""The owner's side of `tcp`: one thread a connection sends published blocks straight from the host pool."""

import socket

from halfmoon.errors import ConfigError
from kvtransfer.transports import wire
from kvtransfer.transports.base import BlockRead, ReadGate
from kvtransfer.transports.request_loop import RequestLoop
from kvtransfer.transports.socket_server import SocketServer
from kvtransfer.transports.sockets import send_all

_KEEPALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))


class TcpServer:
    """A `TransportServer` on `host`. The system draws the port where it is 0. Raises ConfigError for a taken one."""

    name = "tcp"

    def __init__(
        self,
        gate: ReadGate,
        host: str,
        *,
        read_seconds: float,
        hello_seconds: float,
        port: int = 0,
        advertised_host: str = "",
    ) -> None:
        self._gate = gate
        self._loop = RequestLoop(gate, self._send, read_seconds=read_seconds, hello_seconds=hello_seconds)
        listener = listen(host, port)
        self.address = format_address(advertised_host or host, listener.getsockname()[1])
        self._server = SocketServer(listener, self.name, self._serve)

    @property
    def connection_count(self) -> int:
        """Connections that are open."""
        return self._server.connection_count

    def close(self) -> None:
        """See `TransportServer`."""
        self._server.close()

    def _serve(self, sock: socket.socket) -> None:
        tune(sock)
        self._loop.serve(sock)

    def _send(
        self, sock: socket.socket, _request: wire.Request, reply: bytes, reads: list[BlockRead], deadline: float
    ) -> None:
        payload = [self._gate.region.view(read.offset, read.length).data for read in reads]
        send_all(sock, [memoryview(reply), *payload], deadline)


def listen(host: str, port: int) -> socket.socket:
    """Where connections are accepted; the system draws the port where it is 0. Raises ConfigError for a taken one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise ConfigError(f"cannot listen on {format_address(host, port)}: {error.strerror}") from error


def tune(sock: socket.socket) -> None:
    """No delay for small messages, probes for silent peers; buffer sizes are left to the kernel, which knows better."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


def format_address(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(address: str) -> tuple[str, int]:
    """The reverse. Raises ValueError."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)
