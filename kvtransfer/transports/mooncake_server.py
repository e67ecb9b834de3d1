"""The owner's side of `mooncake`: shows its engine the blocks of reads that are under way, and nothing else."""

import socket

from kvtransfer.transports import wire
from kvtransfer.transports.base import BlockRead, ReadGate
from kvtransfer.transports.memory_window import MemoryWindow
from kvtransfer.transports.mooncake_engine import ENGINES, over_rdma, protocol
from kvtransfer.transports.mooncake_wire import pack_place
from kvtransfer.transports.request_loop import RequestLoop
from kvtransfer.transports.socket_server import SocketServer
from kvtransfer.transports.sockets import receive_exactly, send_all
from kvtransfer.transports.tcp_server import format_address, listen, tune
from kvtransfer.transports.wire import WireError


class MooncakeServer:
    """A `TransportServer` on `host`: connections for the words before and after each read; an engine moves the bytes.

    Whoever reaches the engine itself can read the blocks of reads under way and write nothing; over RDMA, where the
    kernel sees no copy, whoever has the keys can touch the whole pool: use it in a fabric of your own.
    Raises ConfigError where the engine is missing or a port is taken.
    """

    name = "mooncake"

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
        self._loop = RequestLoop(gate, self._show, read_seconds=read_seconds, hello_seconds=hello_seconds)
        reached_at = advertised_host or host
        self._engine = ENGINES.take_to_serve(reached_at, host)
        self._window = MemoryWindow(gate.region, writable=over_rdma(), guarded=not over_rdma())
        place = self._engine.register(self._window.address, self._window.size)
        self._base = place.base
        self._place = pack_place(place, protocol())
        listener = listen(host, port)
        self.address = format_address(reached_at, listener.getsockname()[1])
        self._server = SocketServer(listener, self.name, self._serve)

    @property
    def connection_count(self) -> int:
        """Connections that are open."""
        return self._server.connection_count

    def close(self) -> None:
        """See `TransportServer`."""
        self._server.close()
        if self._base:
            self._engine.unregister(self._base)
            self._base = 0
            self._window.bury()
            ENGINES.give_back(self._engine)

    def _serve(self, sock: socket.socket) -> None:
        tune(sock)
        self._loop.serve(sock)

    def _show(
        self, sock: socket.socket, request: wire.Request, reply: bytes, reads: list[BlockRead], deadline: float
    ) -> None:
        """Opens the granted blocks to the engine until the reader has had them, or takes too long."""
        opening = self._window.open((read.offset, read.length) for read in reads)
        try:
            send_all(sock, [memoryview(reply), memoryview(self._place)], deadline)
            ended = wire.Trailer.unpack(receive_exactly(sock, wire.TRAILER_BYTES, deadline))
        finally:
            opening.shut()
        if ended.sequence != request.sequence:
            raise WireError(f"end of batch {ended.sequence}, not {request.sequence}")
