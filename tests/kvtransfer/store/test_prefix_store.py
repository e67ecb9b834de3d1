"""The prefix store of real data planes: puts, leases, and who comes first when host blocks are short."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from halfmoon.errors import InvalidRequestError
from kvtransfer import DataPlane
from kvtransfer.store.client import StoreLease
from tests.kvtransfer.planes import at_rest, offer, plane_spec, planes
from tests.kvtransfer.store.pages import get, hashes, page_hash, put, write

pytestmark = pytest.mark.asyncio(loop_scope="module")

BLOCKS, BOUND, LEASE = 12, 8, 1.5


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[DataPlane]:
    """Twelve host blocks, eight of them for the store, two kept for pulls; leases of 1.5 s."""
    spec = plane_spec("a", 1, host_blocks=BLOCKS, store_blocks=BOUND, pull_reserve=2, lease_seconds=LEASE)
    async with planes(spec) as (plane,):
        yield plane


@pytest_asyncio.fixture(loop_scope="module")
async def plane(running: DataPlane) -> AsyncIterator[DataPlane]:
    """Nothing is held after a test."""
    yield running
    await at_rest(running)


async def pinned(plane: DataPlane, *numbers: int) -> StoreLease:
    """A lease of exactly these pages."""
    lease = await plane.store.acquire(hashes(*numbers), 0.0)
    assert len(lease.offsets) == len(numbers)
    return lease


async def test_pages_are_found_by_their_hashes_until_the_first_that_is_missing(plane: DataPlane) -> None:
    assert await put(plane, 10, 11, 12) == 3
    assert await get(plane, 10, 11, 12) == 3
    assert await get(plane, 10, 11, 99, 12) == 2
    assert await get(plane, 99, 10) == 0


async def test_pages_that_are_stored_or_being_written_are_not_wanted_again(plane: DataPlane) -> None:
    await put(plane, 20)
    places = await plane.store.put_begin(hashes(20, 21))
    assert [place.content_hash for place in places] == hashes(21)
    assert await plane.store.put_begin(hashes(20, 21)) == []
    assert await get(plane, 21) == 0
    await plane.store.put_end(places, write(plane, places))
    assert await get(plane, 20, 21) == 2


async def test_a_page_that_is_given_up_is_not_stored(plane: DataPlane) -> None:
    places = await plane.store.put_begin(hashes(30, 31))
    checksums = write(plane, places)
    await plane.store.put_end(places[:1], checksums[:1])
    await plane.store.put_end(places[1:], [None])
    assert await get(plane, 30, 31) == 1
    with pytest.raises(InvalidRequestError):
        await plane.store.put_end(places, checksums)


async def test_only_content_hashes_name_pages(plane: DataPlane) -> None:
    for call in (plane.store.put_begin([b"short"]), plane.store.acquire([b"short"], 1.0)):
        with pytest.raises(InvalidRequestError, match="do not have 16 bytes"):
            await call


async def test_a_new_page_drops_the_one_used_least_recently(plane: DataPlane) -> None:
    await put(plane, *range(40, 40 + BOUND))
    await get(plane, 47)
    await put(plane, 50)
    assert [number for number in (*range(40, 48), 50) if await get(plane, number)] == [*range(40, 46), 47, 50]


async def test_leased_pages_are_not_dropped_and_what_has_no_room_is_not_taken(plane: DataPlane) -> None:
    await put(plane, *range(60, 60 + BOUND))
    lease = await pinned(plane, *range(60, 66))
    began = time.monotonic()
    assert await put(plane, *range(70, 76)) == 2
    assert time.monotonic() - began < LEASE / 2
    assert await plane.store.release(lease)
    assert await get(plane, *range(60, 66)) == 6


async def test_a_lease_ends_by_itself_and_says_so(plane: DataPlane) -> None:
    await put(plane, 80)
    lease = await pinned(plane, 80)
    assert lease.seconds == LEASE
    assert (await plane.stats()).store_leases == 1
    await asyncio.sleep(LEASE + 0.2)
    stats = await plane.stats()
    assert (stats.store_leases, stats.host_blocks_used) == (0, 0)
    assert not await plane.store.release(lease)


async def test_a_lease_is_alive_once(plane: DataPlane) -> None:
    lease = await plane.store.acquire(hashes(99), 0.0)
    assert await plane.store.release(lease)
    assert not await plane.store.release(lease)


async def test_an_offer_gets_the_blocks_of_stored_pages_at_once(plane: DataPlane) -> None:
    await put(plane, *range(90, 90 + BOUND))
    prompt = await offer(plane, BLOCKS - 2, timeout=0.2)
    assert await get(plane, *range(90, 98)) <= 2
    await plane.withdraw(prompt.handle.handle_id, "done")


async def test_an_offer_waits_for_leased_pages_alone(plane: DataPlane) -> None:
    await put(plane, *range(100, 100 + BOUND))
    lease = await pinned(plane, 100, 101, 102)
    assert (await plane.stats()).host_blocks_used == 3
    waiting = asyncio.create_task(offer(plane, BLOCKS - 2))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    assert await plane.store.release(lease)
    async with asyncio.timeout(LEASE / 2):
        prompt = await waiting
    await plane.withdraw(prompt.handle.handle_id, "done")


async def test_while_an_offer_waits_the_store_takes_nothing(plane: DataPlane) -> None:
    first = await offer(plane, 6)
    waiting = asyncio.create_task(offer(plane, 8))
    await asyncio.sleep(0.05)
    assert await plane.store.put_begin(hashes(110)) == []
    await plane.withdraw(first.handle.handle_id, "done")
    await plane.withdraw((await waiting).handle.handle_id, "done")
    assert await put(plane, 110) == 1


async def test_the_store_leaves_blocks_for_pulls(plane: DataPlane) -> None:
    prompt = await offer(plane, 8)
    assert await put(plane, 120, 121, 122) == 2
    await plane.withdraw(prompt.handle.handle_id, "done")


async def test_calls_that_are_cancelled_leave_nothing(plane: DataPlane) -> None:
    """What a call had answered before it was cancelled is its caller's to give back."""
    await put(plane, 130, 131)
    for step in range(30):
        putting = asyncio.create_task(plane.store.put_begin(hashes(140 + step)))
        acquiring = asyncio.create_task(plane.store.acquire(hashes(130, 131, 139), 1.0))
        await asyncio.sleep(step * 0.0002)
        for call in (putting, acquiring):
            call.cancel()
        await asyncio.wait([putting, acquiring])
        if not putting.cancelled():
            await plane.store.put_end(putting.result(), [None] * len(putting.result()))
        if not acquiring.cancelled():
            await plane.store.release(acquiring.result())
    await at_rest(plane)


async def test_hits_misses_and_bytes_are_counted(plane: DataPlane) -> None:
    before = (await plane.stats()).store_tiers["host"]
    await put(plane, 180, 181)
    await get(plane, 180, 181, 182)
    after = (await plane.stats()).store_tiers["host"]
    assert (after.hits - before.hits, after.misses - before.misses, after.stored - before.stored) == (2, 1, 2)
    assert after.limit_bytes == BOUND * plane.block(0).size
    assert 0 < after.bytes <= after.limit_bytes
    assert after.age_seconds >= 0


async def test_without_a_store_nothing_is_kept() -> None:
    async with planes(plane_spec("a", 1)) as (plane,):
        assert await plane.store.put_begin(hashes(1)) == []
        assert await get(plane, 1) == 0
        assert not (await plane.stats()).store_tiers
        assert await plane.store.acquire_from(plane.endpoint, [page_hash(1)], 0.0) is None
        await at_rest(plane)
