"""Handles over pages of the prefix store: sealed from the start, shared, and given back once."""

import pytest

from halfmoon.errors import LeaseExpiredError
from kvtransfer.core.handle import Handle, HandleState
from kvtransfer.core.handle_table import HandleTable
from kvtransfer.core.store_index import StoredBlock
from tests.kvtransfer.store.pages import hashes, page_hash

LEASE, GRACE = 30.0, 6.0
FIRST, SECOND = bytes(16), bytes([1] * 16)


class Desk:
    """A table, and what it gave back."""

    def __init__(self) -> None:
        self.returned: list[tuple[bytes, ...]] = []
        self.table = HandleTable(lease=LEASE, grace=GRACE, on_change=lambda _: None, on_free=self._freed)

    def lend(self, handle_id: bytes, *numbers: int, lease: float = LEASE, now: float = 0.0) -> Handle:
        run = [StoredBlock(page_hash(number), number, number * 3, now) for number in numbers]
        return self.table.lend(handle_id, run, b"", lease, now)

    def _freed(self, handle: Handle) -> None:
        self.returned.append(handle.lent)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def refused() -> None:
    """A read that is refused has nobody to tell here."""


def test_a_lent_handle_is_complete_and_sealed(desk: Desk) -> None:
    handle = desk.lend(FIRST, 4, 5)
    assert (handle.state, handle.seal, handle.blocks) == (HandleState.SEALED, b"", (4, 5))
    assert (handle.checksums, handle.published) == ([12, 15], {4, 5})
    assert (desk.table.open_count, desk.table.lease_count) == (1, 1)


def test_handles_share_pages_and_each_returns_its_own(desk: Desk) -> None:
    desk.lend(FIRST, 4, 5)
    desk.lend(SECOND, 4)
    desk.table.check()
    assert desk.table.release(SECOND, 1.0)
    assert not desk.table.release(SECOND, 1.0)
    assert desk.returned == [(page_hash(4),)]
    assert desk.table.release(FIRST, 1.0)
    assert desk.returned[1:] == [tuple(hashes(4, 5))]


def test_a_lease_asked_for_is_cut_to_the_owners_and_renewed_by_its_own_length(desk: Desk) -> None:
    assert desk.lend(FIRST, 4, lease=1000.0).expires == LEASE
    short = desk.lend(SECOND, 4, lease=2.0)
    assert desk.table.renew(SECOND, 1.0) == 2.0
    assert short.expires == 3.0


def test_pages_come_back_when_the_lease_is_over_and_the_last_read_has_ended(desk: Desk) -> None:
    desk.lend(FIRST, 4, lease=2.0)
    read = desk.table.begin_read(FIRST, 1.0, refused)
    desk.table.expire(2.0)
    assert desk.returned == []
    with pytest.raises(LeaseExpiredError):
        desk.table.begin_read(FIRST, 2.0, refused)
    assert not desk.table.end_read(read, 3.0)
    assert desk.returned == [(page_hash(4),)]


def test_a_read_that_outlives_the_grace_is_refused(desk: Desk) -> None:
    desk.lend(FIRST, 4, lease=2.0)
    desk.table.begin_read(FIRST, 1.0, refused)
    desk.table.expire(2.0)
    desk.table.expire(2.0 + GRACE)
    assert desk.returned == [(page_hash(4),)]
