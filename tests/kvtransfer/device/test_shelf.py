"""What is kept for readers is bounded in bytes and in time, and never goes while it is read."""

from dataclasses import dataclass

import pytest

from halfmoon.errors import InvalidRequestError, LeaseExpiredError
from kvtransfer.device.shelf import Part, Shelf, Shelved


@dataclass
class Pages:
    nbytes: int


A, B = b"a" * 16, b"b" * 16


class Kept:
    """A shelf for 100 bytes and leases of 10 s, and the failures that readers were told of."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.shelf: Shelf[Pages] = Shelf(100, 10.0, self._changed)

    def add(self, handle_id: bytes, first: int, size: int) -> None:
        self.shelf.add(handle_id, [Part(first, 1, Pages(size))])

    def _changed(self, entry: Shelved[Pages]) -> None:
        if entry.failure:
            self.failures.append(entry.failure)


def test_blocks_are_found_by_number_once_they_are_there() -> None:
    kept = Kept()
    kept.shelf.open(A, 5, expires=1.0)
    kept.shelf.add(A, [Part(0, 4, Pages(40)), Part(4, 1, Pages(10))])
    entry = kept.shelf.take(A)
    assert (entry.ready, kept.shelf.nbytes) == (5, 50)
    assert [entry.find(block).first for block in range(5)] == [0, 0, 0, 0, 4]


def test_an_unsealed_handle_ends_at_its_time_even_while_it_is_read() -> None:
    kept = Kept()
    kept.shelf.open(A, 2, expires=5.0)
    kept.add(A, 0, 10)
    kept.shelf.take(A)
    kept.shelf.expire(4.9)
    assert kept.shelf.handle_count == 1
    kept.shelf.expire(5.0)
    assert (kept.shelf.handle_count, kept.shelf.nbytes, kept.failures) == (0, 0, ["the lease ran out"])


def test_the_lease_of_a_sealed_handle_runs_while_nobody_reads_it() -> None:
    kept = Kept()
    kept.shelf.open(A, 1, expires=5.0)
    kept.add(A, 0, 10)
    kept.shelf.seal(A, b"seal", 4.0)
    entry = kept.shelf.take(A)
    kept.shelf.expire(100.0)
    kept.shelf.give_back(entry, 100.0)
    kept.shelf.expire(109.9)
    assert kept.shelf.handle_count == 1
    kept.shelf.expire(110.0)
    assert kept.shelf.handle_count == 0


def test_what_nobody_reads_makes_room_for_what_comes() -> None:
    kept = Kept()
    for handle_id in (A, B):
        kept.shelf.open(handle_id, 1, expires=5.0)
        kept.add(handle_id, 0, 60)
    assert kept.failures == ["its room was needed"]
    with pytest.raises(LeaseExpiredError):
        kept.shelf.take(A)
    assert kept.shelf.take(B).ready == 1


def test_what_is_read_stays_and_what_comes_has_no_room() -> None:
    kept = Kept()
    for handle_id in (A, B):
        kept.shelf.open(handle_id, 1, expires=5.0)
    kept.add(A, 0, 60)
    kept.shelf.take(A)
    kept.add(B, 0, 60)
    assert kept.failures == ["no room for more pages"]
    assert kept.shelf.nbytes == 60


def test_blocks_out_of_order_are_refused_and_those_of_an_ended_handle_dropped() -> None:
    kept = Kept()
    kept.shelf.open(A, 2, expires=5.0)
    for first in (1, 2):
        with pytest.raises(InvalidRequestError):
            kept.add(A, first, 1)
    with pytest.raises(InvalidRequestError):
        kept.shelf.open(A, 2, expires=5.0)
    kept.shelf.drop(A, "withdrawn")
    kept.shelf.drop(A, "again")
    kept.add(A, 0, 1)
    assert (kept.failures, kept.shelf.nbytes) == (["withdrawn"], 0)


def test_closing_ends_all() -> None:
    kept = Kept()
    for handle_id in (A, B):
        kept.shelf.open(handle_id, 1, expires=5.0)
    kept.shelf.close()
    assert kept.failures == ["the worker stops"] * 2
