"""A disk that hangs in the middle of a write: only pages for the disk wait."""

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kvtransfer import DataPlane
from kvtransfer.store.page_file import TEMPORARY_SUFFIX
from tests.kvtransfer.planes import at_rest, offer, plane_spec, planes
from tests.kvtransfer.store.pages import get, page_hash, put, saved

STUCK = 1000


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[DataPlane]:
    """Its disk has page 1, and hangs with page STUCK until the end of the test: a pipe takes nothing unread."""
    spec = plane_spec("a", 1, host_blocks=10, store_blocks=8, disk_folder=str(tmp_path), disk_bytes=1 << 22)
    async with planes(spec) as (started,):
        pipe = tmp_path / f"{page_hash(STUCK).hex()}{TEMPORARY_SUFFIX}"
        await put(started, 1)
        await saved(started, 1)
        os.mkfifo(pipe)
        await put(started, STUCK)
        yield started
        reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        await at_rest(started)
        os.close(reading)


async def test_calls_puts_and_leases_go_on(plane: DataPlane) -> None:
    slowest = 0.0
    for number in range(2, 40):
        began = time.monotonic()
        assert await put(plane, number) == 1
        assert await get(plane, number, timeout=0.0) == 1
        await plane.stats()
        slowest = max(slowest, time.monotonic() - began)
    assert slowest < 2.0
    assert (await plane.stats()).store_tiers["disk"].stored == 1


async def test_offers_get_all_blocks_of_pages_that_wait_for_the_disk(plane: DataPlane) -> None:
    await put(plane, *range(2, 9))
    prompt = await offer(plane, 10, timeout=0.5)
    await plane.withdraw(prompt.handle.handle_id, "done")


async def test_pages_below_are_missing_in_time(plane: DataPlane) -> None:
    await put(plane, *range(2, 10))
    began = time.monotonic()
    assert await get(plane, 1, timeout=0.3) == 0
    assert 0.25 < time.monotonic() - began < 1.5
