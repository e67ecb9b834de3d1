"""Which stored page goes first."""

import pytest

from halfmoon.errors import InternalError
from kvtransfer.core.store_index import StoreIndex
from tests.kvtransfer.store.pages import hashes, page_hash


def index(*numbers: int, tiers: tuple[str, ...] = ()) -> StoreIndex:
    """Pages by their numbers, in blocks of the same numbers, the first used least recently."""
    made = StoreIndex(tiers)
    for number in numbers:
        made.add(page_hash(number), number, number * 7, float(number), unsaved=tiers)
    return made


def order(made: StoreIndex) -> list[int]:
    """The blocks in the order in which they go."""
    gone = []
    while made.spare_count:
        gone.append(made.pop_oldest().block)
        made.check()
    return gone


def test_the_page_used_least_recently_goes_first() -> None:
    made = index(1, 2, 3)
    assert made.oldest_use == 1.0
    made.pin_run(hashes(1), 9.0)
    made.unpin(hashes(1))
    assert made.oldest_use == 2.0
    assert order(made) == [2, 3, 1]


def test_a_run_ends_before_the_first_page_that_is_missing() -> None:
    made = index(1, 2, 4)
    assert [page.block for page in made.pin_run(hashes(1, 2, 3, 4), 9.0)] == [1, 2]
    assert made.pin_run(hashes(3, 4), 9.0) == []
    assert order(made) == [4]


def test_of_one_prompt_later_pages_go_first() -> None:
    made = index(1, 2, 3, 9)
    made.pin_run(hashes(1, 2, 3), 10.0)
    made.unpin(hashes(1, 2, 3))
    assert order(made) == [9, 3, 2, 1]


def test_a_page_stays_until_its_last_pin_is_gone() -> None:
    made = index(1)
    made.pin_run(hashes(1), 2.0)
    made.pin_run(hashes(1), 3.0)
    made.unpin(hashes(1))
    with pytest.raises(InternalError):
        made.pop_oldest()
    made.unpin(hashes(1))
    assert order(made) == [1]
    with pytest.raises(InternalError):
        made.unpin(hashes(1))


def test_pages_that_a_tier_below_has_go_before_those_that_would_be_lost() -> None:
    made = index(1, 2, 3, 4, tiers=("disk",))
    for number in (3, 2):
        made.mark_saved(page_hash(number), "disk")
    made.mark_saved(page_hash(8), "disk")
    assert [page.block for page in made.unsaved("disk", 9)] == [1, 4]
    assert order(made) == [3, 2, 1, 4]
    assert made.unsaved("disk", 9) == []


def test_a_page_is_safe_only_when_every_tier_has_it() -> None:
    made = index(1, 2, tiers=("disk", "cluster"))
    made.mark_saved(page_hash(2), "disk")
    assert [page.block for page in made.unsaved("disk", 9)] == [1]
    assert [page.block for page in made.unsaved("cluster", 1)] == [1]
    made.mark_saved(page_hash(2), "cluster")
    assert order(made) == [2, 1]


def test_a_pinned_page_that_is_saved_meanwhile_is_safe_afterwards() -> None:
    made = index(1, 2, tiers=("disk",))
    made.pin_run(hashes(2), 3.0)
    made.mark_saved(page_hash(2), "disk")
    made.check()
    made.unpin(hashes(2))
    assert order(made) == [2, 1]


def test_a_page_is_stored_once() -> None:
    made = index(1)
    with pytest.raises(InternalError):
        made.add(page_hash(1), 5, 0, 2.0)
