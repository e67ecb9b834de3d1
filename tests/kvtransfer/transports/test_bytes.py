"""Which bytes arrive, and where: the same over every transport."""

import asyncio
import time
from pathlib import Path

import numpy as np
import pytest

from halfmoon.errors import TransferError
from kvtransfer.checksum import block_checksum
from kvtransfer.plane.block_fetch import WantedBlock, fetch_blocks
from kvtransfer.transports.base import BlockRead, ReadStatus, StopSignal
from kvtransfer.transports.wire import MAX_READS
from tests.kvtransfer.rig import GUARD, Rig, block, read, rig

OK, RANGE = ReadStatus.OK, ReadStatus.BAD_RANGE

BIG = (6 << 20) + 2
SIZES = (1, 2, 3, 4095, 4096, 4097, 65537, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, BIG - 4097)
OFFSETS = (0, 1, 63, 4095, 4096, 4097)
GIB = 1 << 30


async def test_every_size_at_every_offset_arrives_exactly(name: str, tmp_path: Path) -> None:
    """Case 2 of KV transfer: sizes over 4 MiB and unaligned places were silently wrong."""
    async with rig(name, tmp_path, block_bytes=BIG, block_count=2) as owner:
        key, offsets = await owner.offer(2)
        transport, local = owner.reader(2 * BIG)
        for size in SIZES:
            for shift in OFFSETS:
                local.view(0, size + shift + 64)[:] = GUARD
                wanted = BlockRead(0, offsets[1] + shift, size, shift)
                assert await read(transport, key, [wanted]) == [OK]
                assert np.array_equal(local.view(shift, size), owner.bytes_at(offsets[1] + shift, size))
                assert (local.view(0, shift) == GUARD).all()
                assert (local.view(shift + size, 64) == GUARD).all()


async def test_a_block_read_in_pieces_of_any_size_is_the_block(name: str, tmp_path: Path) -> None:
    """Case 2 of KV transfer: an offset was lost when a transfer was cut into pieces."""
    rng = np.random.default_rng(2)
    async with rig(name, tmp_path, block_bytes=BIG, block_count=2) as owner:
        key, offsets = await owner.offer(2)
        transport, local = owner.reader(BIG)
        for pieces in (2, 3, 17, 200, MAX_READS):
            cuts = np.sort(rng.choice(np.arange(1, BIG), pieces - 1, replace=False)).tolist()
            edges = list(zip([0, *cuts], [*cuts, BIG], strict=True))
            reads = [BlockRead(0, offsets[0] + begin, end - begin, begin) for begin, end in edges]
            local.view(0, BIG)[:] = GUARD
            assert await read(transport, key, [reads[i] for i in rng.permutation(pieces)]) == [OK] * pieces
            assert np.array_equal(local.view(0, BIG), owner.bytes_at(offsets[0], BIG))


@pytest.mark.slow
async def test_a_block_of_a_gibibyte_arrives_exactly(name: str, tmp_path: Path) -> None:
    """Case 2 of KV transfer, at its largest."""
    async with rig(name, tmp_path, block_bytes=GIB, block_count=1) as owner:
        key, offsets = await owner.offer(1)
        transport, local = owner.reader(GIB + 64)
        for wanted in (BlockRead(0, offsets[0], GIB, 3), BlockRead(0, offsets[0] + 5, GIB - 5, 0)):
            local.view(0, GIB + 64)[:] = GUARD
            assert await read(transport, key, [wanted], seconds=30.0) == [OK]
            mine, theirs = local.view(wanted.local_offset, wanted.length), owner.bytes_at(wanted.offset, wanted.length)
            assert block_checksum(mine) == block_checksum(theirs)
            assert (local.view(wanted.local_offset + wanted.length, 32) == GUARD).all()


async def test_many_scattered_blocks_go_each_to_its_place(name: str, tmp_path: Path) -> None:
    async with rig(name, tmp_path, block_bytes=1000, block_count=MAX_READS) as owner:
        key, offsets = await owner.offer(MAX_READS)
        transport, local = owner.reader(MAX_READS * 1000)
        order = np.random.default_rng(1).permutation(MAX_READS).tolist()
        reads = [block(offsets[index], 1000 * place, 1000) for place, index in enumerate(order)]
        assert await read(transport, key, reads) == [OK] * MAX_READS
        for wanted in reads:
            assert np.array_equal(local.view(wanted.local_offset, 1000), owner.bytes_at(wanted.offset, 1000))


async def test_a_block_can_go_to_several_places(small: Rig) -> None:
    key, offsets = await small.offer(1)
    transport, local = small.reader()
    assert await read(transport, key, [block(offsets[0], 4096 * place) for place in range(5)]) == [OK] * 5
    for place in range(5):
        assert np.array_equal(local.view(4096 * place, 4096), small.bytes_at(offsets[0], 4096))


async def test_reads_from_several_threads_do_not_mix(small: Rig) -> None:
    """Of two handles, over one transport."""
    handles = [await small.offer(4), await small.offer(4)]
    transport, local = small.reader()

    async def again(index: int) -> None:
        key, offsets = handles[index // 4]
        offset = offsets[index % 4]
        for _ in range(20):
            assert await read(transport, key, [block(offset, 4096 * index)]) == [OK]
            assert np.array_equal(local.view(4096 * index, 4096), small.bytes_at(offset, 4096))

    await asyncio.gather(*(again(index) for index in range(8)))


async def test_no_reads_are_no_work(small: Rig) -> None:
    key, _ = await small.offer(1)
    assert await read(small.reader()[0], key, []) == []


async def test_a_range_that_is_refused_leaves_its_place_alone_and_the_others_right(small: Rig) -> None:
    """Only published blocks of the handle can be named, each by ranges inside of it."""
    await small.offer(2)
    key, offsets = await small.offer(3, published=2)
    others = [offset for offset in range(0, 8 * 4096, 4096) if offset not in offsets]
    transport, local = small.reader()
    reads = [
        block(offsets[0]),
        block(offsets[2], 4096),
        block(others[0], 8192),
        block(offsets[0] + 1, 12288),
        BlockRead(1, offsets[0], 4096, 16384),
        block(1 << 60, 20480),
        block(offsets[1], 24576),
    ]
    assert await read(transport, key, reads) == [OK, RANGE, RANGE, RANGE, RANGE, RANGE, OK]
    assert (local.view(4096, 20480) == GUARD).all()
    assert np.array_equal(local.view(24576, 4096), small.bytes_at(offsets[1], 4096))


async def test_a_byte_that_flipped_at_the_owner_is_found_by_the_checksum(small: Rig) -> None:
    key, offsets = await small.offer(2)
    sums = [block_checksum(small.bytes_at(offset, 4096)) for offset in offsets]
    transport, local = small.reader()
    wanted = [WantedBlock(i, block(offsets[i], 4096 * i), sums[i], i) for i in range(2)]

    def fetch() -> None:
        deadline = time.monotonic() + 5
        fetch_blocks(transport, local, key, wanted, read_seconds=1.0, deadline=deadline, stop=StopSignal())

    await asyncio.to_thread(fetch)
    small.bytes_at(offsets[1], 4096)[4000] ^= 4
    with pytest.raises(TransferError, match=r"block 1 came over \w+ with another checksum"):
        await asyncio.to_thread(fetch)
