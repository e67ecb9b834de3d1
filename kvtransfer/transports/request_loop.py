"""The owner's side of one TCP connection: greeting, proofs, and grants, whatever then moves the bytes."""

import socket
import time
from collections.abc import Callable

from kvtransfer.transports import wire
from kvtransfer.transports.base import BlockRead, Grant, ReadGate, ReadStatus
from kvtransfer.transports.session import OwnerSession
from kvtransfer.transports.sockets import receive_exactly, receive_some, send_all, shut

_LONGEST = wire.REQUEST_BYTES + wire.MAX_READS * wire.RANGE_BYTES

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
            begun = receive_some(sock, _LONGEST, idle_deadline)
            if not self._serve_batch(sock, session, begun):
                return
            idle_deadline = None

    def _serve_batch(self, sock: socket.socket, session: OwnerSession, begun: bytes) -> bool:
        """One request; False when the reader did not prove that it may read."""
        deadline = time.monotonic() + self._read_seconds
        message = _completed(sock, begun, wire.REQUEST_BYTES, deadline)
        request = wire.Request.unpack(message[: wire.REQUEST_BYTES])
        size = wire.REQUEST_BYTES + request.count * wire.RANGE_BYTES
        ranges = _completed(sock, message, size, deadline)[wire.REQUEST_BYTES :]
        if len(ranges) != request.count * wire.RANGE_BYTES:
            raise wire.WireError("a request is followed by bytes that nobody asked for")
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


def _completed(sock: socket.socket, begun: bytes, size: int, deadline: float) -> bytes:
    """At least `size` bytes, of which some have arrived."""
    missing = size - len(begun)
    return begun + receive_exactly(sock, missing, deadline) if missing > 0 else begun


def _granted(ranges: bytes, grant: Grant) -> list[BlockRead]:
    reads = wire.unpack_ranges(ranges)
    return [read for read, status in zip(reads, grant.statuses, strict=True) if status is ReadStatus.OK]
