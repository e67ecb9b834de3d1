"""Blocking sockets with deadlines.

The kernel's own timeouts (SO_RCVTIMEO, SO_SNDTIMEO) are used instead of Python's, which make the socket non-blocking
underneath: a large MSG_WAITALL receive is then one system call.
"""

import socket
import struct
import time
from collections.abc import Sequence

MAX_VECTORS = 64
"""Buffers of one system call; more gain nothing."""

_TIMEVAL = struct.Struct("@ll")
_LEAST_SECONDS = 0.001
"""A timeout of zero would mean none."""


class PeerClosedError(Exception):
    """The other side is gone in the middle of a message."""


def bound_by(sock: socket.socket, deadline: float | None) -> None:
    """Every receive and send from now on waits until `deadline` (monotonic) at most; None means without bound.

    Raises TimeoutError when the deadline has passed.
    """
    seconds = 0.0
    if deadline is not None:
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        seconds = max(seconds, _LEAST_SECONDS)
    value = _TIMEVAL.pack(int(seconds), int(seconds % 1 * 1e6))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)


def receive_into(sock: socket.socket, buffers: Sequence[memoryview], deadline: float | None) -> None:
    """Fills all buffers. Raises PeerClosedError, TimeoutError, or OSError for a broken connection."""
    rest = [buffer for buffer in buffers if buffer.nbytes]
    while rest:
        bound_by(sock, deadline)
        try:
            count = sock.recvmsg_into(rest[:MAX_VECTORS], 0, socket.MSG_WAITALL)[0]
        except BlockingIOError:
            continue
        if count == 0:
            raise PeerClosedError
        rest = _after(rest, count)


def receive_exactly(sock: socket.socket, size: int, deadline: float | None) -> bytes:
    """`size` bytes; errors as of `receive_into`."""
    data = bytearray(size)
    receive_into(sock, [memoryview(data)], deadline)
    return bytes(data)


def send_all(sock: socket.socket, buffers: Sequence[memoryview], deadline: float | None) -> None:
    """Sends all buffers. Raises TimeoutError, or OSError for a broken connection."""
    rest = [buffer for buffer in buffers if buffer.nbytes]
    while rest:
        bound_by(sock, deadline)
        try:
            count = sock.sendmsg(rest[:MAX_VECTORS])
        except BlockingIOError:
            continue
        rest = _after(rest, count)


def shut(sock: socket.socket) -> None:
    """Wakes whoever waits in this socket, at both ends; the descriptor stays open. Never raises, never blocks."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


def is_quiet(sock: socket.socket) -> bool:
    """Whether an idle connection can be used again: open, and nothing unexpected has arrived."""
    try:
        sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _after(buffers: list[memoryview], count: int) -> list[memoryview]:
    """What is left of the buffers behind their first `count` bytes."""
    for index, buffer in enumerate(buffers):
        if count < buffer.nbytes:
            return [buffer[count:], *buffers[index + 1 :]]
        count -= buffer.nbytes
    return []
