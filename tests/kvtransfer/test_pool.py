"""The block pool: one owner a block, nothing lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.errors import InternalError
from kvtransfer.core.pool import BlockOwner, BlockPool, Use

A = BlockOwner(Use.OFFERED, b"a")
B = BlockOwner(Use.FILLING, 7)


def test_blocks_go_out_once_and_come_back() -> None:
    pool = BlockPool(3)
    blocks = pool.allocate(3, A)
    assert sorted(blocks) == [0, 1, 2]
    assert (pool.free_count, pool.used_count) == (0, 3)
    pool.release(blocks, A)
    pool.check()
    assert (pool.free_count, pool.used_count) == (3, 0)


def test_the_block_freed_last_is_given_out_first() -> None:
    pool = BlockPool(8)
    blocks = pool.allocate(4, A)
    pool.release([blocks[2]], A)
    assert pool.allocate(1, B) == (blocks[2],)


def test_more_than_is_free_cannot_be_had_and_takes_nothing() -> None:
    pool = BlockPool(2)
    with pytest.raises(InternalError, match="3 host blocks asked for, 2 free"):
        pool.allocate(3, A)
    assert pool.free_count == 2


@pytest.mark.parametrize("wrong", [[0, 1], [0, 0], [5]])
def test_releasing_what_one_does_not_own_changes_nothing(wrong: list[int]) -> None:
    pool = BlockPool(8)
    mine, _ = pool.allocate(1, A), pool.allocate(1, B)
    assert mine == (0,)
    with pytest.raises(InternalError):
        pool.release(wrong, A)
    assert pool.held_by(A) == {0}
    pool.check()


def test_a_block_changes_owner_whole() -> None:
    pool = BlockPool(2)
    (block,) = pool.allocate(1, A)
    pool.hand_over([block], A, B)
    assert pool.owner_of(block) == B
    assert not pool.held_by(A)
    with pytest.raises(InternalError):
        pool.hand_over([block], A, B)
    pool.check()


@given(st.lists(st.tuples(st.sampled_from([A, B]), st.booleans(), st.integers(0, 5)), max_size=60))
def test_free_and_used_always_add_up(steps: list[tuple[BlockOwner, bool, int]]) -> None:
    pool = BlockPool(9)
    for owner, take, count in steps:
        if take and count <= pool.free_count:
            pool.allocate(count, owner)
        elif not take:
            pool.release(sorted(pool.held_by(owner))[:count], owner)
        pool.check()
        assert pool.free_count + pool.used_count == pool.total
