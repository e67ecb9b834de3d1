"""Blocking sockets with deadlines, most of which cost no system call."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from kvtransfer.transports.sockets import PeerClosedError, receive_exactly, receive_into, receive_some, send_all

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def after(seconds: float) -> float:
    return time.monotonic() + seconds


@pytest.mark.parametrize("before", [None, 30.0, 0.02])
def test_a_receive_ends_at_its_deadline_whatever_the_one_before_it_was(pair: Pair, before: float | None) -> None:
    pair[1].send(b"x")
    receive_exactly(pair[0], 1, None if before is None else after(before))
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        receive_exactly(pair[0], 1, after(0.15))
    assert 0.14 < time.monotonic() - began < 1.0


@pytest.mark.parametrize("deadline", [None, 30.0])
def test_a_receive_outlasts_the_short_deadline_of_the_one_before_it(pair: Pair, deadline: float | None) -> None:
    pair[1].send(b"x")
    receive_exactly(pair[0], 1, after(0.05))
    late = threading.Timer(0.3, pair[1].send, [b"late"])
    late.start()
    assert receive_exactly(pair[0], 4, None if deadline is None else after(deadline)) == b"late"
    late.join()


def test_a_send_that_nobody_receives_ends_at_its_deadline(pair: Pair) -> None:
    with pytest.raises(TimeoutError):
        send_all(pair[0], [memoryview(bytes(64 << 20))], after(0.1))


def test_a_deadline_that_has_passed_receives_nothing(pair: Pair) -> None:
    pair[1].send(b"x")
    with pytest.raises(TimeoutError):
        receive_some(pair[0], 1, after(-0.001))


def test_some_is_what_has_arrived(pair: Pair) -> None:
    pair[1].send(b"abc")
    assert receive_some(pair[0], 100, after(5)) == b"abc"


def test_bytes_that_come_in_pieces_fill_all_buffers(pair: Pair) -> None:
    first, second = bytearray(3), bytearray(4)
    pieces = [
        threading.Timer(0.02 * number, pair[1].send, [piece]) for number, piece in enumerate((b"ab", b"cdef", b"g"))
    ]
    for piece in pieces:
        piece.start()
    receive_into(pair[0], [memoryview(first), memoryview(b""), memoryview(second)], after(5))
    assert (bytes(first), bytes(second)) == (b"abc", b"defg")
    for piece in pieces:
        piece.join()


def test_an_end_in_the_middle_of_a_message_is_no_message(pair: Pair) -> None:
    pair[1].send(b"ab")
    pair[1].close()
    with pytest.raises(PeerClosedError):
        receive_exactly(pair[0], 3, after(5))
