"""Pages go from the devices of one process to those of another, however each shares out its KV heads."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from tests.kvtransfer.device.workers import GEOMETRY, Worker, checksums, worker

BFLOAT16 = replace(GEOMETRY, dtype="bfloat16")


@pytest.fixture(scope="module")
def by_shards() -> Iterator[dict[int, Worker]]:
    """Workers whose KV heads are shared out over so many devices, started together."""
    with ExitStack() as stack:
        yield {shards: stack.enter_context(worker(shards=shards, claim_seconds=30.0)) for shards in (1, 2, 4, 8)}


@pytest.mark.parametrize(("owner", "reader"), [(1, 1), (4, 4), (4, 2), (4, 8)])
async def test_blocks_arrive_bit_for_bit_on_all_devices_of_the_reader(
    by_shards: dict[int, Worker], owner: int, reader: int
) -> None:
    source, target = by_shards[owner], by_shards[reader]
    handle = await source.offer(7, counts=[4, 2, 1])
    got = await target.fetch(handle, range(7))
    assert got["sums"] == checksums(handle, GEOMETRY, range(7))
    assert got["tokens"] == [42]
    assert (await source.do("taken", handle=handle.handle_id.hex()))["taken"]
    assert got["devices"] == list(range(reader))
    await source.assert_at_rest()
    await target.assert_at_rest()


async def test_pages_are_fetched_while_later_ones_are_still_computed(by_shards: dict[int, Worker]) -> None:
    source, target = by_shards[4], by_shards[2]
    handle = await source.offer(6, counts=[1])
    await target.start_fetch(handle, range(6))
    for first, count in ((1, 4), (5, 1)):
        await asyncio.sleep(0.1)
        await source.do("add", handle=handle.handle_id.hex(), first=first, counts=[count])
    await source.do("seal", handle=handle.handle_id.hex())
    assert (await target.answer())["sums"] == checksums(handle, GEOMETRY, range(6))
    await source.assert_at_rest()


async def test_arrays_without_a_wanted_block_stay_where_they_are(by_shards: dict[int, Worker]) -> None:
    handle = await by_shards[4].offer(9, counts=[4, 4, 1])
    got = await by_shards[2].fetch(handle, [5, 8])
    assert got["sums"] == checksums(handle, GEOMETRY, [4, 5, 6, 7, 8])


async def test_a_handle_is_read_once(by_shards: dict[int, Worker]) -> None:
    handle = await by_shards[4].offer(1, counts=[1])
    assert "error" not in await by_shards[2].fetch(handle, [0])
    again = await by_shards[2].fetch(handle, [0])
    assert (again["error"], again["sums"]) == ("LeaseExpiredError", {})


async def test_bfloat16_keeps_its_bits() -> None:
    with worker(shards=2, geometry=BFLOAT16) as source, worker(geometry=BFLOAT16) as target:
        handle = await source.offer(2, counts=[2])
        assert (await target.fetch(handle, [0, 1]))["sums"] == checksums(handle, BFLOAT16, range(2))
