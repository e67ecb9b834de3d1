"""How reads end before their bytes are there, and that nothing is written afterwards: the same over every transport."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kvtransfer.region import Region
from kvtransfer.transports.base import BlockRead, ReadStatus, StopSignal, Transport
from tests.kvtransfer.rig import GUARD, Rig, block, eventually, read, rig

OK, TIMEOUT, STOPPED, UNREACHABLE = ReadStatus.OK, ReadStatus.TIMEOUT, ReadStatus.STOPPED, ReadStatus.UNREACHABLE

LARGE = 4 << 20

Interrupt = Callable[[Transport, StopSignal], None]


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


async def test_a_deadline_that_has_passed_reads_nothing(small: Rig) -> None:
    key, offsets = await small.offer(1)
    transport, local = small.reader()
    for _ in range(2):
        assert await read(transport, key, [block(offsets[0])], seconds=-1.0) == [TIMEOUT]
        assert (local.view(0, 4096) == GUARD).all()
        assert await read(transport, key, [block(offsets[0], 4096)]) == [OK]


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


async def test_stopping_one_read_leaves_the_others_alone(small: Rig) -> None:
    key, offsets = await small.offer(2)
    transport, local = small.reader()
    stop = StopSignal()
    began, wait = small.gate.pause()
    first = asyncio.create_task(read(transport, key, [block(offsets[0])], stop=stop))
    await asyncio.to_thread(began.wait, 5)
    second = asyncio.create_task(read(transport, key, [block(offsets[1], 4096)]))
    stop.set()
    assert await first == [STOPPED]
    wait.set()
    assert await second == [OK]
    assert np.array_equal(local.view(4096, 4096), small.bytes_at(offsets[1], 4096))


@pytest.mark.parametrize("how", ["stop", "close", "deadline"])
async def test_an_interrupted_read_writes_nothing_after_it_has_returned(name: str, how: str, tmp_path: Path) -> None:
    """Case 3 of KV transfer: a late write of an aborted read hit the next owner of the page."""
    async with rig(name, tmp_path, block_bytes=LARGE, block_count=4) as owner:
        key, offsets = await owner.offer(4)
        reads = [BlockRead(0, offset, LARGE, LARGE * index) for index, offset in enumerate(offsets)]
        for milliseconds in (0, 1, 2, 4):
            transport, local = owner.reader(4 * LARGE)
            stop = StopSignal()
            seconds = milliseconds / 1000 if how == "deadline" else 5.0
            reading = asyncio.create_task(read(transport, key, reads, seconds=seconds, stop=stop))
            await asyncio.sleep(milliseconds / 1000)
            if how == "stop":
                stop.set()
            elif how == "close":
                transport.close()
            statuses = await reading
            assert_nothing_is_written(local)
            assert set(statuses) <= {OK, TIMEOUT, STOPPED, UNREACHABLE}
            for wanted, status in zip(reads, statuses, strict=True):
                if status is OK:
                    mine = local.view(wanted.local_offset, LARGE)
                    assert np.array_equal(mine, owner.bytes_at(wanted.offset, LARGE))


def assert_nothing_is_written(local: Region) -> None:
    """Fills all memory, looks again a little later."""
    everything = local.view(0, local.size)
    kept = everything.copy()
    everything[:] = GUARD
    time.sleep(0.02)
    assert (everything == GUARD).all()
    everything[:] = kept


async def test_closing_a_transport_ends_its_reads_and_waits_for_none(small: Rig) -> None:
    key, offsets = await small.offer(1)
    transport, _ = small.reader()
    began, wait = small.gate.pause()
    reading = asyncio.create_task(read(transport, key, [block(offsets[0])]))
    await asyncio.to_thread(began.wait, 5)
    before = time.monotonic()
    transport.close()
    transport.close()
    assert time.monotonic() - before < 0.2
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


async def test_a_server_that_closes_ends_the_reads_under_way(small: Rig) -> None:
    key, offsets = await small.offer(1)
    transport, _ = small.reader()
    began, wait = small.gate.pause()
    reading = asyncio.create_task(read(transport, key, [block(offsets[0])]))
    await asyncio.to_thread(began.wait, 5)
    closing = asyncio.create_task(asyncio.to_thread(small.server.close))
    assert await reading == [UNREACHABLE]
    wait.set()
    await closing
    assert (small.server.connection_count, small.owner.read_count) == (0, 0)
    await asyncio.to_thread(small.server.close)
