"""Who waits for host blocks, and in which order they get them."""

import pytest

from halfmoon.errors import OverloadedError
from kvtransfer.core.block_queue import BlockQueue, Lane, Outcome, Ticket
from kvtransfer.core.pool import BlockOwner, BlockPool, Use


def ticket(
    name: str, count: int, *, lane: Lane = Lane.OFFER, least: int | None = None, deadline: float = 10.0
) -> Ticket:
    return Ticket(BlockOwner(Use.OFFERED, name), lane, count if least is None else least, count, deadline)


def test_what_fits_is_granted_at_once() -> None:
    queue = BlockQueue(BlockPool(4))
    first = ticket("a", 3)
    queue.join(first)
    assert queue.advance(0.0) == [first]
    assert (first.outcome, len(first.blocks)) == (Outcome.GRANTED, 3)


def test_offers_are_served_in_order_even_when_a_later_one_would_fit() -> None:
    pool = BlockPool(4)
    queue = BlockQueue(pool)
    holder, big, small = ticket("holder", 2), ticket("big", 4), ticket("small", 1)
    for joined in (holder, big, small):
        queue.join(joined)
    assert queue.advance(0.0) == [holder]
    pool.release(holder.blocks, holder.owner)
    assert queue.advance(1.0) == [big]
    pool.release(big.blocks, big.owner)
    assert queue.advance(2.0) == [small]


def test_a_wait_ends_at_its_deadline_and_lets_the_next_one_pass() -> None:
    pool = BlockPool(4)
    queue = BlockQueue(pool)
    holder, big, small = ticket("holder", 2), ticket("big", 4, deadline=5.0), ticket("small", 1)
    for joined in (holder, big, small):
        queue.join(joined)
    queue.advance(0.0)
    assert queue.advance(4.9) == []
    assert queue.advance(5.0) == [big, small]
    assert (big.outcome, big.blocks) == (Outcome.EXPIRED, ())
    assert queue.waiting == 0


def test_a_ticket_that_leaves_takes_nothing() -> None:
    pool = BlockPool(1)
    queue = BlockQueue(pool)
    holder, gone = ticket("holder", 1), ticket("gone", 1)
    queue.join(holder)
    queue.join(gone)
    queue.advance(0.0)
    queue.leave(gone)
    queue.leave(gone)
    pool.release(holder.blocks, holder.owner)
    assert queue.advance(1.0) == []
    assert (gone.outcome, pool.free_count) == (Outcome.WITHDRAWN, 1)


def test_a_pull_takes_what_there_is_between_least_and_most() -> None:
    pool = BlockPool(5)
    queue = BlockQueue(pool)
    pull = ticket("pull", 8, lane=Lane.PULL, least=1)
    queue.join(pull)
    queue.advance(0.0)
    assert len(pull.blocks) == 5


def test_pulls_go_before_offers_and_may_use_the_reserve() -> None:
    pool = BlockPool(4)
    queue = BlockQueue(pool, reserve=1)
    offer, second, pull = ticket("offer", 3), ticket("second", 1), ticket("pull", 1, lane=Lane.PULL)
    queue.join(offer)
    queue.join(second)
    assert queue.advance(0.0) == [offer]
    queue.join(pull)
    assert queue.advance(0.0) == [pull]
    assert second.outcome is Outcome.WAITING
    assert (queue.capacity(Lane.OFFER), queue.capacity(Lane.PULL)) == (3, 4)


def test_a_full_line_refuses() -> None:
    queue = BlockQueue(BlockPool(1), bound=1)
    queue.join(ticket("a", 2))
    with pytest.raises(OverloadedError):
        queue.join(ticket("b", 2))
    queue.join(ticket("c", 1, lane=Lane.PULL))
