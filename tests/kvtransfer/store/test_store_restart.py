"""Stored pages outlast their process: an orderly end, kill -9, and what a disk may have done to them."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from halfmoon.errors import ConfigError
from kvtransfer import DataPlane, PlaneSpec
from kvtransfer.store.page_file import SUFFIX
from tests.kvtransfer.planes import at_rest, plane_spec, planes
from tests.kvtransfer.store.pages import get, hashes, page_hash, put, saved

BOUND = 6
WORKING_SET = range(10 * BOUND)


def spec(folder: Path, **changes: object) -> PlaneSpec:
    """Six pages in host memory, up to a hundred on disk."""
    fields = {"store_blocks": BOUND, "disk_folder": str(folder), "disk_bytes": 100 * 16384, **changes}
    return plane_spec("a", 1, **fields)


async def fill(plane: DataPlane) -> None:
    """Stores the working set, no faster than the disk takes it."""
    for number in WORKING_SET:
        assert await put(plane, number) == 1
        await saved(plane, number - BOUND // 2)


async def kill(plane: DataPlane) -> None:
    os.kill(plane.pid, signal.SIGKILL)
    async with asyncio.timeout(10):
        assert await asyncio.shield(plane.died) == -signal.SIGKILL


async def test_a_working_set_of_ten_times_the_host_pages_is_served_from_disk(tmp_path: Path) -> None:
    async with planes(spec(tmp_path)) as (plane,):
        await fill(plane)
        for number in WORKING_SET:
            assert await get(plane, number) == 1
        stats = (await plane.stats()).store_tiers
        assert stats["host"].hits + stats["disk"].hits == len(WORKING_SET)
        assert stats["disk"].hits >= len(WORKING_SET) - BOUND
        await at_rest(plane)


async def test_a_long_run_comes_back_as_far_as_host_memory_goes(tmp_path: Path) -> None:
    async with planes(spec(tmp_path)) as (plane,):
        await fill(plane)
        assert await get(plane, *WORKING_SET) == BOUND
        await at_rest(plane)


async def test_pages_on_disk_are_not_wanted_again(tmp_path: Path) -> None:
    async with planes(spec(tmp_path)) as (plane,):
        await fill(plane)
        assert await plane.store.put_begin(hashes(0)) == []


async def test_an_orderly_end_writes_what_is_not_on_disk_yet(tmp_path: Path) -> None:
    async with planes(spec(tmp_path)) as (plane,):
        assert await put(plane, *range(BOUND)) == BOUND
    async with planes(spec(tmp_path)) as (plane,):
        assert await get(plane, *range(BOUND)) == BOUND


async def test_after_kill_9_every_page_is_right_or_missing(tmp_path: Path) -> None:
    """Killed while it writes, again and again; `get` fails the test for a wrong byte."""
    kept = 0
    for round_number in range(4):
        async with planes(spec(tmp_path)) as (plane,):
            for number in WORKING_SET[:kept]:
                await get(plane, number)
            first = round_number * 12
            for number in range(first, first + 12):
                await put(plane, number)
            await asyncio.sleep(round_number * 0.01)
            await kill(plane)
            kept = first + 12
    async with planes(spec(tmp_path)) as (plane,):
        assert not any(name.endswith("-new") for name in os.listdir(tmp_path))
        found = [number for number in WORKING_SET if await get(plane, number)]
        assert found
        assert (await plane.stats()).store_tiers["disk"].damaged == 0


async def test_a_torn_file_is_dropped_and_the_others_are_served(tmp_path: Path) -> None:
    async with planes(spec(tmp_path)) as (plane,):
        await put(plane, 1, 2, 3)
        await saved(plane, 3)
        await kill(plane)
    os.truncate(tmp_path / f"{page_hash(2).hex()}{SUFFIX}", 5000)
    async with planes(spec(tmp_path)) as (plane,):
        assert (await plane.stats()).store_tiers["disk"].damaged == 1
        assert await get(plane, 1, 2, 3) == 1
        assert await put(plane, 2) == 1
        assert await get(plane, 1, 2, 3) == 3


async def test_a_page_that_rots_on_disk_is_missing_and_never_wrong(tmp_path: Path) -> None:
    async with planes(spec(tmp_path)) as (plane,):
        await put(plane, 1)
        await saved(plane, 1)
    path = tmp_path / f"{page_hash(1).hex()}{SUFFIX}"
    data = bytearray(path.read_bytes())
    data[-7] ^= 4
    path.write_bytes(data)
    async with planes(spec(tmp_path)) as (plane,):
        assert await get(plane, 1) == 0
        assert (await plane.stats()).store_tiers["disk"].damaged == 1
        assert not path.exists()
        await at_rest(plane)


async def test_another_worker_gets_pages_that_are_only_on_disk_here(tmp_path: Path) -> None:
    async with planes(spec(tmp_path)) as (plane,):
        await put(plane, 1, 2)
    async with planes(spec(tmp_path), plane_spec("b", 2)) as (owner, reader):
        assert await reader.store.acquire_from(owner.endpoint, hashes(1, 2), 0.0) is None
        handle = await reader.store.acquire_from(owner.endpoint, hashes(1, 2), 5.0)
        assert handle is not None
        async for event in reader.pull("request", handle, [0, 1], 10.0):
            if offset := getattr(event, "offset", None):
                await reader.free_blocks([offset])
        await at_rest(owner)


@pytest.mark.parametrize(
    ("changes", "reason"), [({"disk_bytes": 100}, "one takes"), ({"disk_folder": "/proc/kv"}, "cannot keep KV pages")]
)
async def test_a_disk_that_cannot_work_stops_the_start(tmp_path: Path, changes: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        await DataPlane.start(spec(tmp_path, **changes))


@pytest.mark.parametrize("changes", [{"store_blocks": 33}, {"store_blocks": -1}, {"store_blocks": 0}])
def test_a_store_that_cannot_work_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        spec(tmp_path, **changes)
