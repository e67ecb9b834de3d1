"""What is read, and where it lies."""

import mmap

import pytest

from halfmoon.config import PageGeometry
from kvtransfer.bench.cases import DEFAULT_PAGE_BYTES, FULL, QUICK, SINGLE, Case
from kvtransfer.bench.ours import pieces, wanted_blocks
from kvtransfer.bench.sides import Offer


@pytest.mark.parametrize("case", [SINGLE, *FULL, *QUICK], ids=lambda case: case.label)
def test_blocks_are_scattered_page_aligned_and_do_not_overlap(case: Case) -> None:
    for side in zip(*case.moves, strict=True):
        assert len(set(side)) == case.blocks
        assert all(case.layout.offset(place) % mmap.PAGESIZE == 0 for place in side)
        assert max(side) < case.layout.count
    assert case.blocks == 1 or [source for source, _ in case.moves] != sorted(source for source, _ in case.moves)


def test_both_processes_see_the_same_moves() -> None:
    assert Case(4096, 100).moves == Case(4096, 100).moves


def test_a_default_page_is_one_of_the_default_model() -> None:
    assert PageGeometry(30, 3, 64, 64, "float32").block_bytes == DEFAULT_PAGE_BYTES


def test_a_batch_is_cut_into_pieces_that_miss_and_double_nothing() -> None:
    case = Case(180 << 10, 100)
    wanted = wanted_blocks(case, Offer(checksums=tuple(range(case.layout.count))))
    cut = pieces(wanted, 2)
    assert [block for piece in cut for block in piece] == wanted
    assert len(cut) > 1
    assert all(block.checksum * case.layout.stride == block.read.offset for block in wanted)
