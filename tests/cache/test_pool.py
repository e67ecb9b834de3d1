"""Pages are shared, remembered and forgotten in the right order."""

import pytest

from halfmoon.cache.pool import PagePool
from halfmoon.errors import InternalError

A, B, C, D = (bytes([letter]) * 16 for letter in b"ABCD")


def held(pool: PagePool, *contents: bytes) -> list[int]:
    """New pages with these contents."""
    pages = pool.allocate(len(contents))
    assert pages is not None
    for page, content in zip(pages, contents, strict=True):
        pool.register(page, content)
    return pages


def test_pages_are_numbered_from_1_because_page_0_is_scratch() -> None:
    assert sorted(PagePool(4).allocate(4) or []) == [1, 2, 3, 4]


def test_too_few_pages_take_nothing() -> None:
    pool = PagePool(3)
    pool.allocate(2)
    assert pool.allocate(2) is None
    assert (pool.available, pool.used) == (1, 2)


def test_a_page_is_freed_by_its_last_reference_alone() -> None:
    pool = PagePool(2)
    pages = held(pool, A)
    assert pool.match([A]) == pages
    pool.share(pages)
    for used in (1, 1, 0):
        pool.release(pages)
        assert pool.used == used
    pool.check()


def test_a_match_ends_at_the_first_unknown_page() -> None:
    pool = PagePool(4)
    first, second, _ = held(pool, A, B, D)
    assert pool.match([A, B, C, D]) == [first, second]
    assert pool.match([C, A]) == []


def test_released_pages_keep_their_content_until_they_are_needed() -> None:
    pool = PagePool(3)
    pages = held(pool, A, B)
    pool.release(pages)
    assert (pool.available, pool.used) == (3, 0)
    assert pool.allocate(1) == [3], "a worthless page goes first"
    assert pool.match([A, B]) == pages


def test_the_end_of_a_prefix_is_evicted_before_its_start() -> None:
    pool = PagePool(3)
    pages = held(pool, A, B, C)
    pool.release(pages)
    assert pool.allocate(1) == [pages[2]]
    assert pool.allocate(1) == [pages[1]]
    assert pool.match([A, B, C]) == [pages[0]]


def test_the_prefix_used_longest_ago_is_evicted_first() -> None:
    pool = PagePool(3)
    a, b, c = (held(pool, content) for content in (A, B, C))
    for page in (a, b, c):
        pool.release(page)
    pool.release(pool.match([A]))
    assert [pool.allocate(1) for _ in range(3)] == [b, c, a]


def test_a_used_page_is_never_evicted() -> None:
    pool = PagePool(2)
    page = held(pool, A)
    assert pool.allocate(2) is None
    assert pool.allocate(1) is not None
    assert pool.match([A]) == page


def test_the_first_page_with_a_content_keeps_the_name() -> None:
    pool = PagePool(2)
    first, second = held(pool, A), held(pool, A)
    pool.release(second)
    assert pool.allocate(1) == second, "the nameless twin was worthless"
    assert pool.match([A]) == first
    assert pool.snapshot() == [A]


def test_changes_are_told_once() -> None:
    pool = PagePool(2)
    pool.release(held(pool, A, B))
    assert pool.drain_changes() == ([A, B], [])
    assert pool.drain_changes() == ([], [])
    pool.allocate(1)
    assert pool.drain_changes() == ([], [B])


def test_a_content_that_came_back_within_one_report_was_not_removed() -> None:
    pool = PagePool(1)
    pool.release(held(pool, A))
    pool.drain_changes()
    pool.release(pool.allocate(1) or [])
    pool.release(held(pool, A))
    assert pool.drain_changes() == ([A], [])


def test_a_page_freed_twice_is_an_error() -> None:
    pool = PagePool(1)
    pages = held(pool, A)
    pool.release(pages)
    with pytest.raises(KeyError):
        pool.release(pages)


def test_the_check_finds_a_page_in_two_places() -> None:
    pool = PagePool(2)
    pool.share([2])
    with pytest.raises(InternalError, match="2 free, 0 cached, 1 used"):
        pool.check()
