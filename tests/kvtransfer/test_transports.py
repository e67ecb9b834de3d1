"""What every transport must do, for `shm` and `tcp` alike."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from halfmoon.errors import TransferError
from kvtransfer.checksum import block_checksum
from kvtransfer.plane.block_fetch import WantedBlock, fetch_blocks
from kvtransfer.proofs import new_handle_id
from kvtransfer.transports.base import BlockRead, ReadKey, ReadStatus, StopSignal
from kvtransfer.transports.wire import MAX_READS
from tests.kvtransfer.rig import GUARD, Rig, eventually, read, rig

BIG = (6 << 20) + 2
SIZES = (1, 2, 3, 4095, 4096, 4097, 65537, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, BIG - 4097)
OFFSETS = (0, 1, 63, 4095, 4096, 4097)

OK, STALE, EXPIRED = ReadStatus.OK, ReadStatus.STALE_INCARNATION, ReadStatus.LEASE_EXPIRED
RANGE, TIMEOUT, STOPPED, UNREACHABLE = (
    ReadStatus.BAD_RANGE,
    ReadStatus.TIMEOUT,
    ReadStatus.STOPPED,
    ReadStatus.UNREACHABLE,
)


@pytest.fixture(params=["shm", "tcp"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def small(name: str, tmp_path: Path) -> AsyncIterator[Rig]:
    """Eight blocks of a page."""
    async with rig(name, tmp_path) as made:
        yield made


def block(offset: int, local: int = 0, length: int = 4096) -> BlockRead:
    return BlockRead(0, offset, length, local)


async def test_every_size_at_every_offset_arrives_exactly(name: str, tmp_path: Path) -> None:
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


async def test_many_scattered_blocks_go_each_to_its_place(name: str, tmp_path: Path) -> None:
    async with rig(name, tmp_path, block_bytes=1000, block_count=MAX_READS) as owner:
        key, offsets = await owner.offer(MAX_READS)
        transport, local = owner.reader(MAX_READS * 1000)
        order = np.random.default_rng(1).permutation(MAX_READS).tolist()
        reads = [block(offsets[index], 1000 * place, 1000) for place, index in enumerate(order)]
        assert await read(transport, key, reads) == [OK] * MAX_READS
        for wanted in reads:
            assert np.array_equal(local.view(wanted.local_offset, 1000), owner.bytes_at(wanted.offset, 1000))


async def test_reads_from_several_threads_do_not_mix(small: Rig) -> None:
    key, offsets = await small.offer(8)
    transport, local = small.reader()

    async def again(index: int) -> None:
        for _ in range(20):
            assert await read(transport, key, [block(offsets[index], 4096 * index)]) == [OK]
            assert np.array_equal(local.view(4096 * index, 4096), small.bytes_at(offsets[index], 4096))

    await asyncio.gather(*(again(index) for index in range(8)))


async def test_no_reads_are_no_work(small: Rig) -> None:
    key, _ = await small.offer(1)
    assert await read(small.reader()[0], key, []) == []


async def test_a_wrong_secret_reads_nothing(small: Rig) -> None:
    _, offsets = await small.offer(1)
    transport, local = small.reader()
    stranger = ReadKey(new_handle_id(), small.spec.incarnation)
    assert await read(transport, stranger, [block(offsets[0])]) == [EXPIRED]
    assert (local.view(0, 8192) == GUARD).all()


async def test_only_published_blocks_of_the_handle_can_be_named(small: Rig) -> None:
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


async def test_another_incarnation_reads_nothing(small: Rig) -> None:
    key, offsets = await small.offer(1)
    transport, local = small.reader()
    assert await read(transport, ReadKey(key.handle_id, 1), [block(offsets[0])]) == [STALE]
    assert (local.view(0, 4096) == GUARD).all()
    assert await read(transport, key, [block(offsets[0])]) == [OK]


async def test_a_released_handle_reads_nothing(small: Rig) -> None:
    key, offsets = await small.offer(1)
    transport, _ = small.reader()
    assert await read(transport, key, [block(offsets[0])]) == [OK]
    small.owner.release(key.handle_id)
    assert await read(transport, key, [block(offsets[0])]) == [EXPIRED]


async def test_a_lease_that_ran_out_reads_nothing(name: str, tmp_path: Path) -> None:
    async with rig(name, tmp_path, lease=0.05) as owner:
        key, offsets = await owner.offer(1)
        transport, _ = owner.reader()
        assert await read(transport, key, [block(offsets[0])]) == [OK]
        await asyncio.sleep(0.06)
        assert await read(transport, key, [block(offsets[0])]) == [EXPIRED]


async def test_a_handle_that_ends_while_the_bytes_move_makes_the_whole_batch_bad(small: Rig) -> None:
    key, offsets = await small.offer(2)
    transport, _ = small.reader()
    small.gate.on_end = lambda: small.owner.withdraw(key.handle_id, "stop")
    assert await read(transport, key, [block(offsets[0]), block(offsets[1], 4096)]) == [EXPIRED, EXPIRED]
    assert small.blocks.used_count == 0


async def test_blocks_are_not_reused_while_a_read_is_under_way(small: Rig) -> None:
    key, offsets = await small.offer(8)
    transport, _ = small.reader()
    used: list[int] = []

    def meddle() -> None:
        small.owner.release(key.handle_id)
        used.append(small.blocks.used_count)

    small.gate.on_begin = meddle
    assert await read(transport, key, [block(offsets[0])]) == [EXPIRED]
    assert used == [8]
    await eventually(lambda: small.blocks.used_count == 0)


async def test_a_byte_that_flipped_at_the_owner_is_found(small: Rig) -> None:
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


async def test_an_owner_that_does_not_answer_costs_the_deadline_and_not_the_next_read(small: Rig) -> None:
    key, offsets = await small.offer(1)
    transport, local = small.reader()
    _, wait = small.gate.pause()
    began = time.monotonic()
    assert await read(transport, key, [block(offsets[0])], seconds=0.2) == [TIMEOUT]
    assert time.monotonic() - began < 1.0
    small.gate.on_begin = lambda: None
    assert await read(transport, key, [block(offsets[0], 4096)]) == [OK]
    wait.set()
    await eventually(lambda: small.server.connection_count == 1)
    assert (local.view(0, 4096) == GUARD).all()


async def test_a_read_that_is_stopped_ends_at_once_and_writes_no_more(small: Rig) -> None:
    key, offsets = await small.offer(1)
    transport, local = small.reader()
    stop = StopSignal()
    began, wait = small.gate.pause()
    reading = asyncio.create_task(read(transport, key, [block(offsets[0])], stop=stop))
    await asyncio.to_thread(began.wait, 5)
    stop.set()
    async with asyncio.timeout(1):
        assert await reading == [STOPPED]
    wait.set()
    await eventually(lambda: small.server.connection_count == 0)
    assert (local.view(0, 4096) == GUARD).all()


async def test_a_read_that_was_stopped_before_it_began_reads_nothing(small: Rig) -> None:
    key, offsets = await small.offer(1)
    transport, local = small.reader()
    stop = StopSignal()
    stop.set()
    assert await read(transport, key, [block(offsets[0])], stop=stop) == [STOPPED]
    assert (local.view(0, 4096) == GUARD).all()


async def test_closing_a_transport_ends_its_reads(small: Rig) -> None:
    key, offsets = await small.offer(1)
    transport, _ = small.reader()
    began, wait = small.gate.pause()
    reading = asyncio.create_task(read(transport, key, [block(offsets[0])]))
    await asyncio.to_thread(began.wait, 5)
    transport.close()
    assert await reading == [UNREACHABLE]
    assert await read(transport, key, [block(offsets[0])]) == [UNREACHABLE]
    wait.set()


async def test_nobody_there_is_said_at_once(small: Rig) -> None:
    key, offsets = await small.offer(1)
    transport, _ = small.reader()
    await asyncio.to_thread(small.server.close)
    began = time.monotonic()
    assert await read(transport, key, [block(offsets[0])]) == [UNREACHABLE]
    assert time.monotonic() - began < 1.5


async def test_an_owner_that_goes_away_ends_idle_connections_too(small: Rig) -> None:
    key, offsets = await small.offer(1)
    transport, _ = small.reader()
    assert await read(transport, key, [block(offsets[0])]) == [OK]
    await asyncio.to_thread(small.server.close)
    assert await read(transport, key, [block(offsets[0])]) == [UNREACHABLE]


async def test_an_owner_restarted_at_the_same_address_is_not_taken_for_the_old_one(name: str, tmp_path: Path) -> None:
    async with rig(name, tmp_path, incarnation=1) as old:
        key, offsets = await old.offer(1)
        transport, local = old.reader()
        assert await read(transport, key, [block(offsets[0])]) == [OK]
        address = old.server.address
        await asyncio.to_thread(old.server.close)
        async with rig(name, tmp_path, incarnation=2, address=address) as new:
            assert new.server.address == address
            local.view(0, 4096)[:] = GUARD
            assert await read(transport, key, [block(offsets[0])]) == [STALE]
            assert (local.view(0, 4096) == GUARD).all()
            new_key, new_offsets = await new.offer(1)
            assert await read(transport, new_key, [block(new_offsets[0])]) == [OK]
            assert np.array_equal(local.view(0, 4096), new.bytes_at(new_offsets[0], 4096))


async def test_connections_are_kept_and_none_is_left(small: Rig) -> None:
    key, offsets = await small.offer(1)
    transport, _ = small.reader()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        assert await read(transport, key, [block(offsets[0])]) == [OK]
    assert small.server.connection_count == 1
    transport.close()
    await eventually(lambda: small.server.connection_count == 0)
    assert len(os.listdir("/proc/self/fd")) == before
