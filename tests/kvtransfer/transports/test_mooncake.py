"""What Mooncake's engine may do to an owner, and to a reader whose owner has come to a standstill."""

import asyncio
import time
from pathlib import Path

import numpy as np

from kvtransfer.region import Region
from kvtransfer.transports.base import ReadStatus
from kvtransfer.transports.mooncake import MooncakeTransport
from kvtransfer.transports.mooncake_engine import Engine, EnginePool, Place
from tests.kvtransfer.rig import GUARD, Rig, block, read, rig


class Stranger:
    """Mooncake's engine in the hands of somebody who knows where an owner's engine and memory are."""

    def __init__(self, owner: Rig) -> None:
        self.memory = Region.create(owner.region.size)
        self._engine = Engine("127.0.0.1", "127.0.0.1")
        self._place = _place_of(owner)

    def reads(self, offset: int, length: int) -> bool:
        transfer = self._engine.start_read(self._place, self.memory.address, offset, length)
        return transfer is not None and self._succeeds(transfer)

    def writes(self, offset: int, length: int) -> None:
        """Whatever the engine says of it."""
        engine, place = self._engine._engine, self._place
        write = engine.batch_transfer_async_write  # type: ignore[attr-defined]
        transfer = write(place.segment, [self.memory.address], [place.base + offset], [length])
        self._succeeds(transfer)

    def _succeeds(self, transfer: int) -> bool:
        deadline = time.monotonic() + 5.0
        while (ended := self._engine.poll(transfer)) is None:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        return ended


def _place_of(owner: Rig) -> Place:
    server = owner.server
    return Place(server._engine.segment, 0, server._base)  # type: ignore[attr-defined]


async def test_a_stranger_reads_only_what_is_being_read_and_writes_nothing(tmp_path: Path) -> None:
    """Case 12 of KV transfer, as far as the engine lets us."""
    async with rig("mooncake", tmp_path) as owner:
        key, offsets = await owner.offer(2)
        before = owner.region.view(0, owner.region.size).copy()
        stranger = await asyncio.to_thread(Stranger, owner)
        assert not await asyncio.to_thread(stranger.reads, offsets[0], 4096)
        opening = owner.server._window.open([(offsets[0], 4096)])  # type: ignore[attr-defined]
        assert await asyncio.to_thread(stranger.reads, offsets[0], 4096)
        assert not await asyncio.to_thread(stranger.reads, offsets[1], 4096)
        await asyncio.to_thread(stranger.writes, offsets[0], 4096)
        await asyncio.sleep(0.1)
        opening.shut()
        assert not await asyncio.to_thread(stranger.reads, offsets[0], 4096)
        assert np.array_equal(owner.region.view(0, owner.region.size), before)
        transport, _ = owner.reader()
        assert await read(transport, key, [block(offsets[0])]) == [ReadStatus.OK]


async def test_a_read_that_its_engine_does_not_end_returns_at_its_deadline_and_nothing_is_written_later(
    tmp_path: Path,
) -> None:
    """As with an owner that came to a standstill: the engine learns late that it may read."""
    async with rig("mooncake", tmp_path) as owner:
        key, offsets = await owner.offer(1)
        transport, local = owner.reader()
        assert isinstance(transport, MooncakeTransport)
        assert await read(transport, key, [block(offsets[0])]) == [ReadStatus.OK]
        local.view(0, 8192)[:] = GUARD
        channel = transport._channel
        assert channel is not None
        start_read = channel._engine.start_read

        def late(place: Place, address: int, offset: int, length: int) -> int | None:
            time.sleep(0.6)
            return start_read(place, address, offset, length)

        channel._engine.start_read = late  # type: ignore[method-assign]
        began = time.monotonic()
        assert await read(transport, key, [block(offsets[0])], seconds=0.2) == [ReadStatus.TIMEOUT]
        assert time.monotonic() - began < 0.55
        await asyncio.sleep(1.0)
        assert (local.view(0, 8192) == GUARD).all()
        del channel._engine.start_read
        assert await read(transport, key, [block(offsets[0])]) == [ReadStatus.OK]
        assert np.array_equal(local.view(0, 4096), owner.bytes_at(offsets[0], 4096))


async def test_engines_are_used_again_but_never_where_they_may_be_misled() -> None:
    pool = EnginePool()
    here, moved = Place("127.0.0.1:1", 1, 4096), Place("127.0.0.1:1", 2, 4096)
    first = await asyncio.to_thread(pool.take_to_read, "127.0.0.1", here)
    pool.give_back(first)
    assert pool.take_to_read("127.0.0.1", here) is first
    pool.give_back(first)
    second = await asyncio.to_thread(pool.take_to_read, "127.0.0.1", moved)
    assert second is not first
    first.distrust(here)
    pool.give_back(second)
    assert pool.take_to_read("127.0.0.1", moved) is second
    assert pool.take_to_read("127.0.0.1", Place("127.0.0.1:2", 3, 0)) is first
