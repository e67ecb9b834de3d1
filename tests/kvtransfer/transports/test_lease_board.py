"""Reads of `shm` that ask nobody: what the board must show before and after each of them."""

import asyncio
import mmap
import os
import random
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from halfmoon.errors import TransferError
from kvtransfer.layout import BlockLayout
from kvtransfer.proofs import handle_tag, new_handle_id
from kvtransfer.region import Region
from kvtransfer.transports import shm
from kvtransfer.transports.base import BlockRead, ReadKey, ReadStatus
from kvtransfer.transports.lease_board import BoardView, LeaseBoard
from kvtransfer.transports.wire import WireError
from tests.kvtransfer.rig import GUARD, Rig, block, read, rig

OK, EXPIRED, RANGE = ReadStatus.OK, ReadStatus.LEASE_EXPIRED, ReadStatus.BAD_RANGE
MINE, THEIRS = handle_tag(b"mine"), handle_tag(b"theirs")


@pytest.fixture
async def owner(tmp_path: Path) -> AsyncIterator[Rig]:
    """Eight blocks of a page behind `shm`, with a board."""
    async with rig("shm", tmp_path, board=True) as made:
        yield made


class Questions:
    """Counts the reads that the owner was asked for."""

    def __init__(self, owner: Rig) -> None:
        self.count = 0
        owner.gate.on_begin = self._ask

    def _ask(self) -> None:
        self.count += 1


async def test_the_owner_is_asked_once_for_a_lease_that_is_held(owner: Rig) -> None:
    key, offsets = await owner.offer(8)
    transport, local = owner.reader()
    asked = Questions(owner)
    for _ in range(3):
        local.view(0, 8 * 4096)[:] = GUARD
        reads = [block(offset, 4096 * place) for place, offset in enumerate(reversed(offsets))]
        assert await read(transport, key, reads) == [OK] * 8
        for wanted in reads:
            assert np.array_equal(local.view(wanted.local_offset, 4096), owner.bytes_at(wanted.offset, 4096))
    assert asked.count == 1


async def test_a_secret_is_proved_before_the_board_is_believed(owner: Rig) -> None:
    known, offsets = await owner.offer(1)
    _, others = await owner.offer(1)
    transport, local = owner.reader()
    assert await read(transport, known, [block(offsets[0])]) == [OK]
    local.view(0, 4096)[:] = GUARD
    stranger = ReadKey(new_handle_id(), owner.spec.incarnation)
    assert await read(transport, stranger, [block(others[0])]) == [EXPIRED]
    assert await read(transport, known, [block(others[0])]) == [RANGE]
    assert (local.view(0, 4096) == GUARD).all()


async def test_a_handle_that_has_ended_is_read_no_more(owner: Rig) -> None:
    key, offsets = await owner.offer(1)
    transport, local = owner.reader()
    assert await read(transport, key, [block(offsets[0])]) == [OK]
    local.view(0, 4096)[:] = GUARD
    owner.owner.release(key.handle_id)
    assert await read(transport, key, [block(offsets[0])]) == [EXPIRED]
    assert (local.view(0, 4096) == GUARD).all()


async def test_a_handle_that_ends_while_the_bytes_move_makes_the_whole_batch_bad(
    owner: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, offsets = await owner.offer(2)
    transport, _ = owner.reader()
    reads = [block(offsets[0]), block(offsets[1], 4096)]
    assert await read(transport, key, reads) == [OK, OK]

    def ends(target: NDArray[np.uint8], source: NDArray[np.uint8], piece: int) -> None:
        owner.owner.withdraw(key.handle_id, "stop")
        target[:] = source

    monkeypatch.setattr(shm, "_copy", ends)
    assert await read(transport, key, reads) == [EXPIRED, EXPIRED]


async def test_a_lease_ends_on_time_also_where_its_owner_does_not_see_to_it(tmp_path: Path) -> None:
    async with rig("shm", tmp_path, lease=0.1, board=True) as owner:
        key, offsets = await owner.offer(1)
        transport, _ = owner.reader()
        asked = Questions(owner)
        assert await read(transport, key, [block(offsets[0])]) == [OK]
        await asyncio.sleep(0.06)
        owner.owner.renew(key.handle_id)
        await asyncio.sleep(0.06)
        assert await read(transport, key, [block(offsets[0])]) == [OK]
        assert asked.count == 1
        await asyncio.sleep(0.11)
        assert await read(transport, key, [block(offsets[0])]) == [EXPIRED]


async def test_memory_that_is_still_mapped_says_nothing_of_an_owner_that_is_gone(owner: Rig) -> None:
    key, offsets = await owner.offer(1)
    transport, _ = owner.reader()
    assert await read(transport, key, [block(offsets[0])]) == [OK]
    await asyncio.to_thread(owner.server.close)
    assert await read(transport, key, [block(offsets[0])]) == [ReadStatus.UNREACHABLE]


async def test_bytes_that_are_said_to_be_right_are_never_those_of_the_next_prompt(tmp_path: Path) -> None:
    size, rng = 128 << 10, random.Random(9)
    async with rig("shm", tmp_path, block_bytes=size, block_count=4, board=True) as owner:
        transport, local = owner.reader(4 * size)
        for number in range(60):
            key, offsets = await owner.offer(4)
            for offset in offsets:
                owner.bytes_at(offset, size)[:] = number
            reads = [block(offset, size * place, size) for place, offset in enumerate(offsets)]
            assert await read(transport, key, reads) == [OK] * 4
            reading = asyncio.create_task(read(transport, key, reads))
            await asyncio.sleep(rng.random() * 0.001)
            owner.owner.withdraw(key.handle_id, "aborted")
            next_key, next_offsets = await owner.offer(4)
            for offset in next_offsets:
                owner.bytes_at(offset, size)[:] = GUARD
            for wanted, status in zip(reads, await reading, strict=True):
                assert status in {OK, EXPIRED}
                assert status is EXPIRED or (local.view(wanted.local_offset, size) == number).all()
            owner.owner.withdraw(next_key.handle_id, "done")


@pytest.fixture
def board() -> Iterator[LeaseBoard]:
    made = LeaseBoard(BlockLayout(1000, 4))
    yield made
    made.close()


def view(board: LeaseBoard) -> BoardView:
    return BoardView(os.dup(board.fd))


def holds(seen: BoardView, tag: bytes, *reads: BlockRead) -> bool:
    claim = seen.claim(tag, reads)
    return claim is not None and claim.holds(time.monotonic())


def test_a_range_must_lie_in_one_block_of_the_handle(board: LeaseBoard) -> None:
    board.post([1, 2], MINE, time.monotonic() + 60)
    seen = view(board)
    assert holds(seen, MINE, block(4096, length=1000), block(8192 + 999, length=1))
    assert not holds(seen, THEIRS, block(4096, length=1000))
    for wanted in (block(0, length=1), block(4096, length=1001), block(4095, length=2), block(1 << 60, length=1)):
        assert not holds(seen, MINE, block(4096, length=1000), wanted)
    assert not holds(seen, MINE, BlockRead(1, 4096, 1000, 0))


def test_the_end_of_a_handle_leaves_blocks_of_another(board: LeaseBoard) -> None:
    board.post([0, 1], MINE, time.monotonic() + 60)
    board.post([1], THEIRS, time.monotonic() + 60)
    board.clear([0, 1], MINE)
    seen = view(board)
    assert not holds(seen, MINE, block(0, length=1))
    assert holds(seen, THEIRS, block(4096, length=1))


def test_a_closed_board_vouches_for_nothing() -> None:
    board = LeaseBoard(BlockLayout(1000, 4))
    board.post([0], MINE, time.monotonic() + 60)
    seen = view(board)
    board.close()
    assert not holds(seen, MINE, block(0, length=1))


def test_readers_cannot_write_on_a_board(board: LeaseBoard) -> None:
    with pytest.raises(PermissionError):
        mmap.mmap(board.fd, 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)


@pytest.mark.parametrize("size", [8, 4096])
def test_other_memory_is_not_taken_for_a_board(size: int) -> None:
    memory = Region.create(size)
    with pytest.raises((WireError, TransferError)):
        BoardView(os.dup(memory.fd))
    memory.close()
