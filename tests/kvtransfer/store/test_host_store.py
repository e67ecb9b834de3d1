"""What the prefix store may take of the host pool, and what it must give."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from halfmoon.errors import InternalError, InvalidRequestError
from kvtransfer.core.block_queue import BlockQueue, Lane, Outcome, Ticket
from kvtransfer.core.host_store import HostStore
from kvtransfer.core.pool import BlockOwner, BlockPool, Use
from kvtransfer.core.store_index import StoredBlock
from tests.kvtransfer.store.pages import hashes, page_hash

OTHER = BlockOwner(Use.OFFERED, b"offer")


def store(total: int, bound: int, *, reserve: int = 0) -> tuple[BlockPool, HostStore]:
    pool = BlockPool(total)
    return pool, HostStore(pool, bound=bound, reserve=reserve)


def fill(host: HostStore, *numbers: int, now: float = 0.0) -> None:
    """Stores pages, one after the other."""
    for number in numbers:
        for content_hash in host.claim("put", hashes(number), now):
            host.fill("put", content_hash, 1, now)


def test_claimed_pages_are_found_once_they_are_filled() -> None:
    _, host = store(4, 4)
    assert set(host.claim(1, hashes(1, 2), 0.0)) == set(hashes(1, 2))
    assert host.pin_run(hashes(1, 2), 0.0) == []
    host.fill(1, page_hash(1), 11, 0.0)
    host.give_up(1, page_hash(2))
    assert [page.checksum for page in host.pin_run(hashes(1, 2), 0.0)] == [11]
    host.check()
    assert host.block_count == 1


def test_a_page_that_is_stored_or_being_stored_is_not_claimed_again() -> None:
    _, host = store(4, 4)
    fill(host, 1)
    host.claim("first", hashes(2), 0.0)
    assert list(host.claim("second", hashes(1, 2, 3), 0.0)) == hashes(3)


def test_pages_of_another_put_are_nobody_elses_to_end() -> None:
    _, host = store(4, 4)
    host.claim("first", hashes(1), 0.0)
    with pytest.raises(InvalidRequestError):
        host.require_claims("second", hashes(1))
    with pytest.raises(InternalError):
        host.fill("second", page_hash(1), 1, 0.0)
    assert host.claimed_by("first") == {page_hash(1)}


def test_a_page_that_is_stored_does_not_make_room_for_others_of_its_prompt() -> None:
    _, host = store(4, 2)
    fill(host, 1, 2)
    assert list(host.claim("put", hashes(1, 3, 4), 1.0)) == hashes(3)
    assert page_hash(1) in host


def test_it_drops_its_own_oldest_pages_at_its_bound() -> None:
    pool, host = store(8, 3)
    fill(host, 1, 2, 3, 4, 5)
    assert [number for number in range(1, 6) if page_hash(number) in host] == [3, 4, 5]
    assert (pool.free_count, host.stored, host.dropped) == (5, 5, 2)


def test_claims_and_pins_are_never_dropped_for_new_pages() -> None:
    _, host = store(8, 3)
    host.claim("writing", hashes(1), 0.0)
    fill(host, 2, 3)
    host.pin_run(hashes(2), 1.0)
    assert list(host.claim("put", hashes(4, 5), 0.0)) == hashes(4)
    assert page_hash(2) in host
    assert page_hash(3) not in host


def test_it_leaves_what_others_must_be_able_to_have() -> None:
    pool, host = store(4, 4, reserve=2)
    assert len(host.claim("put", hashes(1, 2, 3), 0.0)) == 2
    assert pool.free_count == 2


def test_it_takes_no_block_when_the_pool_is_used_by_others() -> None:
    pool, host = store(2, 2)
    pool.allocate(2, OTHER)
    assert host.claim("put", hashes(1), 0.0) == {}


def test_whoever_waits_for_blocks_gets_those_of_spare_pages() -> None:
    pool, host = store(4, 4)
    queue = BlockQueue(pool, spare=host)
    fill(host, 1, 2, 3, 4)
    host.pin_run(hashes(4), 1.0)
    small, big = (Ticket(OTHER, Lane.OFFER, count, count, 9.0) for count in (2, 2))
    for ticket in (small, big):
        queue.join(ticket)
    assert queue.advance(0.0) == [small]
    assert page_hash(4) in host
    assert host.spare_count == 1
    host.unpin(hashes(4))
    assert queue.advance(0.0) == [big]
    assert host.block_count == 0


class StoreMachine(RuleBasedStateMachine):
    """Puts, leases, and others who take blocks, in any order."""

    TOTAL, BOUND, RESERVE = 9, 6, 1
    NUMBERS = st.lists(st.integers(0, 11), min_size=1, max_size=5, unique=True)

    def __init__(self) -> None:
        super().__init__()
        self.pool, self.host = store(self.TOTAL, self.BOUND, reserve=self.RESERVE)
        self.queue = BlockQueue(self.pool, reserve=self.RESERVE, spare=self.host)
        self.now = 0.0
        self.claims: dict[bytes, int] = {}
        self.leases: list[list[StoredBlock]] = []
        self.taken: list[int] = []

    @rule(numbers=NUMBERS)
    def claim(self, numbers: list[int]) -> None:
        known = [each for each in hashes(*numbers) if each in self.host or each in self.claims]
        new = [each for each in hashes(*numbers) if each not in known]
        pinned = {page.content_hash for run in self.leases for page in run}
        spare = self.host.spare_count - len(set(known) - pinned - set(self.claims))
        could = self.pool.free_count + spare > self.RESERVE
        room = (self.host.block_count < self.BOUND and self.pool.free_count) or spare
        claimed = self.host.claim("put", hashes(*numbers), self.now)
        assert list(claimed) == new[: len(claimed)]
        assert bool(claimed) == bool(new and could and room)
        self.claims.update(claimed)

    @rule(keep=st.booleans())
    def end_claims(self, keep: bool) -> None:
        for content_hash in self.claims:
            if keep:
                self.host.fill("put", content_hash, 1, self.now)
            else:
                self.host.give_up("put", content_hash)
        self.claims = {}

    @rule(numbers=NUMBERS)
    def pin(self, numbers: list[int]) -> None:
        expected = 0
        for content_hash in hashes(*numbers):
            if content_hash not in self.host:
                break
            expected += 1
        run = self.host.pin_run(hashes(*numbers), self.now)
        assert len(run) == expected
        if run:
            self.leases.append(run)

    @rule()
    def unpin(self) -> None:
        if self.leases:
            self.host.unpin([page.content_hash for page in self.leases.pop(0)])

    @rule(count=st.integers(1, 6), lane=st.sampled_from(Lane))
    def others_take(self, count: int, lane: Lane) -> None:
        """An allocation that can succeed does, at once."""
        pinned = {page.block for run in self.leases for page in run}
        held = len(pinned) + len(self.claims) + len(self.taken)
        possible = self.TOTAL - held - (self.RESERVE if lane is Lane.OFFER else 0) >= count
        ticket = Ticket(OTHER, lane, count, count, self.now + 1.0)
        self.queue.join(ticket)
        self.queue.advance(self.now)
        assert (ticket.outcome is Outcome.GRANTED) == possible
        self.queue.leave(ticket)
        self.taken += ticket.blocks

    @rule(count=st.integers(1, 9))
    def others_give_back(self, count: int) -> None:
        given, self.taken = self.taken[:count], self.taken[count:]
        self.pool.release(given, OTHER)

    @invariant()
    def everything_adds_up(self) -> None:
        self.now += 1.0
        self.pool.check()
        self.host.check()

    @invariant()
    def what_is_pinned_is_there(self) -> None:
        for page in (page for run in self.leases for page in run):
            assert page.content_hash in self.host
            owner = self.pool.owner_of(page.block)
            assert owner is not None
            assert owner.use is Use.STORED


TestStoreMachine = StoreMachine.TestCase
