"""Bytes within a bound; the key used least recently goes first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.errors import InternalError
from kvtransfer.core.byte_lru import ByteLru


def filled(bound: int, **sizes: int) -> ByteLru[str]:
    lru: ByteLru[str] = ByteLru(bound)
    for at, (key, size) in enumerate(sizes.items()):
        lru.add(key, size, float(at))
    return lru


def test_the_key_used_least_recently_goes_first() -> None:
    lru = filled(10, a=4, b=3, c=3)
    lru.touch("a", 9.0)
    assert lru.oldest_use == 1.0
    assert lru.make_room(4) == ["b", "c"]
    assert "a" in lru
    assert lru.bytes == 4


def test_what_can_never_fit_drops_nothing() -> None:
    lru = filled(10, a=4)
    assert lru.make_room(11) == []
    with pytest.raises(InternalError):
        lru.add("b", 11, 1.0)
    assert (len(lru), lru.bytes) == (1, 4)


def test_a_key_is_added_once_and_removed_once() -> None:
    lru = filled(10, a=4)
    with pytest.raises(InternalError):
        lru.add("a", 1, 1.0)
    assert lru.remove("a")
    assert not lru.remove("a")
    assert (lru.oldest_use, lru.bytes) == (None, 0)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 12), st.booleans()), max_size=80))
def test_it_keeps_its_bound_and_the_newest(steps: list[tuple[int, int, bool]]) -> None:
    lru: ByteLru[int] = ByteLru(20)
    by_use: list[int] = []
    for at, (key, size, remove) in enumerate(steps):
        if remove:
            assert lru.remove(key) == (key in by_use)
        elif key in lru:
            lru.touch(key, float(at))
        else:
            assert lru.make_room(size) == by_use[: len(by_use) - len(lru)]
        by_use = [each for each in by_use if each in lru and each != key]
        if not remove:
            if key not in lru:
                lru.add(key, size, float(at))
            by_use.append(key)
        lru.check()
        assert len(lru) == len(by_use)
