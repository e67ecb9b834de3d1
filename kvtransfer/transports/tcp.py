"""The reader's side of `tcp`: blocks are received straight into place, over a few connections with one batch each."""

import socket
import time
from collections.abc import Sequence

from kvtransfer.region import Region
from kvtransfer.transports import wire
from kvtransfer.transports.base import BlockRead, ReadKey, ReadStatus, StopSignal
from kvtransfer.transports.batch import require_ok, run_batch
from kvtransfer.transports.connection import Connection, ConnectionPool
from kvtransfer.transports.sockets import receive_exactly, receive_into, receive_some, send_all
from kvtransfer.transports.tcp_server import parse_address, tune


class TcpTransport:
    """A `Transport` to the server at `address` (`host:port`)."""

    name = "tcp"
    streams = 2

    def __init__(self, address: str, *, connect_seconds: float) -> None:
        peer = parse_address(address)
        self._pool = ConnectionPool(lambda deadline: connect(peer, deadline), connect_seconds=connect_seconds)
        self._region: Region | None = None

    def register(self, region: Region) -> None:
        """See `Transport`."""
        self._region = region

    def read_batch(
        self, key: ReadKey, reads: Sequence[BlockRead], *, deadline: float, stop: StopSignal
    ) -> list[ReadStatus]:
        """See `Transport`."""

        def exchange(connection: Connection) -> list[ReadStatus]:
            return self._exchange(connection, key, reads, deadline)

        return run_batch(self._pool, key, reads, exchange, deadline=deadline, stop=stop)

    def close(self) -> None:
        """See `Transport`."""
        self._pool.close()

    def _exchange(
        self, connection: Connection, key: ReadKey, reads: Sequence[BlockRead], deadline: float
    ) -> list[ReadStatus]:
        sock, session = connection.sock, connection.session
        places = self._places(reads)
        send_all(sock, [memoryview(session.request(key, reads))], deadline)
        reply, said = _receive_reply(sock, len(reads), deadline)
        require_ok(session.check_reply(key, reply, said))
        statuses = wire.unpack_statuses(said)
        wanted = [place for place, status in zip(places, statuses, strict=True) if status is ReadStatus.OK]
        ended = bytearray(wire.TRAILER_BYTES)
        receive_into(sock, [*wanted, memoryview(ended)], deadline)
        require_ok(session.check_trailer(wire.Trailer.unpack(bytes(ended))))
        return statuses

    def _places(self, reads: Sequence[BlockRead]) -> list[memoryview]:
        if self._region is None:
            raise RuntimeError("no region is registered")
        return [self._region.view(read.local_offset, read.length).data for read in reads]


def _receive_reply(sock: socket.socket, count: int, deadline: float) -> tuple[wire.Reply, bytes]:
    """The reply and the status of each range; a refusal comes without, and nothing follows it."""
    data = receive_some(sock, wire.REPLY_BYTES + count, deadline)
    if len(data) < wire.REPLY_BYTES:
        data += receive_exactly(sock, wire.REPLY_BYTES - len(data), deadline)
    reply = wire.Reply.unpack(data[: wire.REPLY_BYTES])
    require_ok(reply.status)
    missing = wire.REPLY_BYTES + count - len(data)
    return reply, data[wire.REPLY_BYTES :] + receive_exactly(sock, missing, deadline)


def connect(peer: tuple[str, int], deadline: float) -> socket.socket:
    """A tuned connection to (host, port). Raises OSError, of which TimeoutError for the deadline (monotonic)."""
    sock = socket.create_connection(peer, timeout=max(0.001, deadline - time.monotonic()))
    sock.settimeout(None)
    tune(sock)
    return sock
