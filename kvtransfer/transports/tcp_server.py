"""The owner's side of `tcp`: one thread a connection sends published blocks straight from the host pool."""

import socket
import time

from halfmoon.errors import ConfigError
from kvtransfer.transports import wire
from kvtransfer.transports.base import BlockRead, Grant, ReadGate, ReadStatus
from kvtransfer.transports.session import OwnerSession
from kvtransfer.transports.socket_server import SocketServer
from kvtransfer.transports.sockets import receive_exactly, send_all, shut

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
        self._read_seconds = read_seconds
        self._hello_seconds = hello_seconds
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listener = socket.create_server((host, port), family=family, backlog=128)
        except OSError as error:
            raise ConfigError(f"cannot listen on {format_address(host, port)}: {error.strerror}") from error
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
        """A reader that has proved nothing must speak soon; after that the connection may idle, watched by probes."""
        tune(sock)
        session = OwnerSession(self._gate)
        idle_deadline: float | None = time.monotonic() + self._hello_seconds
        send_all(sock, [memoryview(session.greeting())], idle_deadline)
        while True:
            first = receive_exactly(sock, 1, idle_deadline)
            if not self._serve_batch(sock, session, first):
                return
            idle_deadline = None

    def _serve_batch(self, sock: socket.socket, session: OwnerSession, first: bytes) -> bool:
        """One request; False when the reader did not prove that it may read."""
        deadline = time.monotonic() + self._read_seconds
        request = wire.Request.unpack(first + receive_exactly(sock, wire.REQUEST_BYTES - 1, deadline))
        ranges = receive_exactly(sock, request.count * wire.RANGE_BYTES, deadline)
        answer = session.answer(request, ranges, lambda: shut(sock))
        if answer.grant is None:
            send_all(sock, [memoryview(answer.reply)], deadline)
            return False
        try:
            payload = self._payload(wire.unpack_ranges(ranges), answer.grant)
            send_all(sock, [memoryview(answer.reply), *payload], deadline)
            trailer = session.trailer(request, answer.grant)
        finally:
            self._gate.end(answer.grant)
        send_all(sock, [memoryview(trailer)], deadline)
        return True

    def _payload(self, reads: list[BlockRead], grant: Grant) -> list[memoryview]:
        region = self._gate.region
        return [
            region.view(read.offset, read.length).data
            for read, status in zip(reads, grant.statuses, strict=True)
            if status is ReadStatus.OK
        ]


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
