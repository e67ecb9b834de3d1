"""The owner's side of one TCP connection: greeting, proofs, and grants, whatever then moves the bytes."""

import socket
import time
from collections.abc import Callable

from kvtransfer.transports import wire
from kvtransfer.transports.base import BlockRead, Grant, ReadGate, ReadStatus
from kvtransfer.transports.session import OwnerSession
from kvtransfer.transports.sockets import receive_exactly, send_all, shut

Move = Callable[[socket.socket, wire.Request, bytes, list[BlockRead], float], None]
"""Sends the reply (bytes) and moves the granted ranges by the deadline; the blocks are touched no more afterwards."""


class RequestLoop:
    """Serves connections of a `SocketServer`: `serve` is called with each."""

    def __init__(self, gate: ReadGate, move: Move, *, read_seconds: float, hello_seconds: float) -> None:
        self._gate = gate
        self._move = move
        self._read_seconds = read_seconds
        self._hello_seconds = hello_seconds

    def serve(self, sock: socket.socket) -> None:
        """A reader that has proved nothing must speak soon; after that the connection may idle, watched by probes."""
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
            self._move(sock, request, answer.reply, _granted(ranges, answer.grant), deadline)
            trailer = session.trailer(request, answer.grant)
        finally:
            self._gate.end(answer.grant)
        send_all(sock, [memoryview(trailer)], deadline)
        return True


def _granted(ranges: bytes, grant: Grant) -> list[BlockRead]:
    reads = wire.unpack_ranges(ranges)
    return [read for read, status in zip(reads, grant.statuses, strict=True) if status is ReadStatus.OK]
