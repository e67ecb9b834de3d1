"""Blocking sockets with deadlines.

The kernel's own timeouts (SO_RCVTIMEO, SO_SNDTIMEO) are used instead of Python's, which make the socket non-blocking
underneath: a large MSG_WAITALL receive is then one system call.
"""

import socket
import struct
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar
from weakref import WeakKeyDictionary

MAX_VECTORS = 64
"""Buffers of one system call; more gain nothing."""

_TIMEVAL = struct.Struct("@ll")
_LEAST_SECONDS = 0.001
"""A timeout of zero would mean none."""

_SHORT_SECONDS = 0.1

_bounds: WeakKeyDictionary[socket.socket, float] = WeakKeyDictionary()
"""The timeout that the kernel has for each socket, in seconds; 0 is none."""

Result = TypeVar("Result")


class PeerClosedError(Exception):
    """The other side is gone in the middle of a message."""


def bound_by(sock: socket.socket, deadline: float | None) -> None:
    """Every receive and send from now on ends at `deadline` (monotonic) at the latest, if there is one.

    It may end earlier, with BlockingIOError: call again, with the same deadline, and go on. That leaves most calls
    without a system call. Raises TimeoutError when the deadline has passed.
    """
    if deadline is None:
        return
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    if not left / 4 <= _bounds.get(sock, 0.0) <= left:
        _set_bound(sock, max(left * 0.75 if left > _SHORT_SECONDS else left, _LEAST_SECONDS))


def _set_bound(sock: socket.socket, seconds: float) -> None:
    value = _TIMEVAL.pack(int(seconds), int(seconds % 1 * 1e6))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)
    _bounds[sock] = seconds


def within(sock: socket.socket, deadline: float | None, call: Callable[[], Result]) -> Result:
    """The result of one receive or send of `sock`. Raises TimeoutError, or OSError for a broken connection."""
    while True:
        bound_by(sock, deadline)
        try:
            return call()
        except BlockingIOError:
            _set_bound(sock, 0.0)


def receive_into(sock: socket.socket, buffers: Sequence[memoryview], deadline: float | None) -> None:
    """Fills all buffers. Raises PeerClosedError, TimeoutError, or OSError for a broken connection."""
    rest = [buffer for buffer in buffers if buffer.nbytes]
    while rest:
        vectors = rest[:MAX_VECTORS]
        count = within(sock, deadline, partial(sock.recvmsg_into, vectors, 0, socket.MSG_WAITALL))[0]
        if count == 0:
            raise PeerClosedError
        rest = _after(rest, count)


def receive_some(sock: socket.socket, most: int, deadline: float | None) -> bytes:
    """What arrives next, at least a byte; errors as of `receive_into`."""
    data = within(sock, deadline, partial(sock.recv, most))
    if not data:
        raise PeerClosedError
    return data


def receive_exactly(sock: socket.socket, size: int, deadline: float | None) -> bytes:
    """`size` bytes; errors as of `receive_into`."""
    data = b""
    while len(data) < size:
        more = within(sock, deadline, partial(sock.recv, size - len(data), socket.MSG_WAITALL))
        if not more:
            raise PeerClosedError
        data += more
    return data


def send_all(sock: socket.socket, buffers: Sequence[memoryview], deadline: float | None) -> None:
    """Sends all buffers. Raises TimeoutError, or OSError for a broken connection."""
    rest = [buffer for buffer in buffers if buffer.nbytes]
    while rest:
        count = within(sock, deadline, partial(sock.sendmsg, rest[:MAX_VECTORS]))
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
