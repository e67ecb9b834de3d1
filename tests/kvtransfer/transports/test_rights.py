"""Who may read what, and for how long: the same over every transport."""

import asyncio
import random
from pathlib import Path

import numpy as np

from kvtransfer.proofs import new_handle_id
from kvtransfer.transports.base import ReadKey, ReadStatus
from tests.kvtransfer.rig import GUARD, Rig, block, eventually, read, rig

OK, STALE, EXPIRED = ReadStatus.OK, ReadStatus.STALE_INCARNATION, ReadStatus.LEASE_EXPIRED


async def test_a_wrong_secret_reads_nothing(small: Rig) -> None:
    _, offsets = await small.offer(1)
    transport, local = small.reader()
    stranger = ReadKey(new_handle_id(), small.spec.incarnation)
    assert await read(transport, stranger, [block(offsets[0])]) == [EXPIRED]
    assert (local.view(0, 8192) == GUARD).all()


async def test_another_incarnation_reads_nothing(small: Rig) -> None:
    key, offsets = await small.offer(1)
    transport, local = small.reader()
    assert await read(transport, ReadKey(key.handle_id, 1), [block(offsets[0])]) == [STALE]
    assert (local.view(0, 4096) == GUARD).all()
    assert await read(transport, key, [block(offsets[0])]) == [OK]


async def test_an_owner_restarted_at_the_same_address_is_not_taken_for_the_old_one(name: str, tmp_path: Path) -> None:
    """Case 7 of KV transfer: cached descriptors read the new process's memory."""
    async with rig(name, tmp_path, incarnation=1) as old:
        key, offsets = await old.offer(1)
        transport, local = old.reader()
        assert await read(transport, key, [block(offsets[0])]) == [OK]
        address = old.server.address
        await asyncio.to_thread(old.server.close)
        async with rig(name, tmp_path, incarnation=2, address=address) as new:
            assert new.server.address == address
            local.view(0, 4096)[:] = GUARD
            for _ in range(3):
                assert await read(transport, key, [block(offsets[0])]) == [STALE]
                assert (local.view(0, 4096) == GUARD).all()
            new_key, new_offsets = await new.offer(1)
            assert await read(transport, new_key, [block(new_offsets[0])]) == [OK]
            assert np.array_equal(local.view(0, 4096), new.bytes_at(new_offsets[0], 4096))


async def test_a_released_handle_reads_nothing(small: Rig) -> None:
    key, offsets = await small.offer(1)
    transport, _ = small.reader()
    assert await read(transport, key, [block(offsets[0])]) == [OK]
    small.owner.release(key.handle_id)
    assert await read(transport, key, [block(offsets[0])]) == [EXPIRED]


async def test_a_lease_that_ran_out_reads_nothing(name: str, tmp_path: Path) -> None:
    async with rig(name, tmp_path, lease=0.3) as owner:
        key, offsets = await owner.offer(1)
        transport, _ = owner.reader()
        assert await read(transport, key, [block(offsets[0])]) == [OK]
        await asyncio.sleep(0.31)
        assert await read(transport, key, [block(offsets[0])]) == [EXPIRED]


async def test_a_handle_that_ends_while_the_bytes_move_makes_the_whole_batch_bad(small: Rig) -> None:
    """Case 9 of KV transfer: the lease is checked after the bytes have arrived, too."""
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


async def test_an_owner_touches_blocks_no_more_once_it_has_ended_their_read(name: str, tmp_path: Path) -> None:
    """What is written to them from then on never reaches the reader."""
    size = 1 << 20
    async with rig(name, tmp_path, block_bytes=size) as owner:
        key, offsets = await owner.offer(4)
        transport, local = owner.reader(4 * size)
        before = [owner.bytes_at(offset, size).copy() for offset in offsets]

        def overwrite() -> None:
            for offset in offsets:
                owner.bytes_at(offset, size)[:] = GUARD

        owner.gate.on_ended = overwrite
        reads = [block(offset, size * index, size) for index, offset in enumerate(offsets)]
        assert await read(transport, key, reads) == [OK] * 4
        for index, content in enumerate(before):
            assert np.array_equal(local.view(size * index, size), content)


async def test_bytes_that_are_said_to_be_right_are_never_those_of_the_next_prompt(name: str, tmp_path: Path) -> None:
    """Case 9 of KV transfer: handles end at any moment of a read, and their memory is written at once by another's."""
    size, rng = 128 << 10, random.Random(9)
    async with rig(name, tmp_path, block_bytes=size, block_count=4) as owner:
        transport, local = owner.reader(4 * size)
        for number in range(60):
            key, offsets = await owner.offer(4)
            for offset in offsets:
                owner.bytes_at(offset, size)[:] = number
            reads = [block(offset, size * index, size) for index, offset in enumerate(offsets)]
            assert await read(transport, key, reads[:1]) == [OK]
            reading = asyncio.create_task(read(transport, key, reads))
            await asyncio.sleep(rng.random() * 0.002)
            owner.owner.withdraw(key.handle_id, "aborted")
            next_key, next_offsets = await owner.offer(4)
            for offset in next_offsets:
                owner.bytes_at(offset, size)[:] = GUARD
            statuses = await reading
            for wanted, status in zip(reads, statuses, strict=True):
                assert status in {OK, EXPIRED}
                assert status is EXPIRED or (local.view(wanted.local_offset, size) == number).all()
            owner.owner.withdraw(next_key.handle_id, "done")


async def test_ending_a_read_twice_says_no_the_second_time(small: Rig) -> None:
    key, offsets = await small.offer(1)
    for _ in range(2):
        grant = small.owner.begin(key.handle_id, [block(offsets[0])], lambda: None)
        assert grant is not None
        assert small.owner.end(grant)
        assert not small.owner.end(grant)
