"""How offers wait for host blocks, and how leases end, at a real data plane."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from halfmoon.errors import InvalidRequestError, LeaseExpiredError, OverloadedError
from kvtransfer import DataPlane
from tests.kvtransfer.planes import at_rest, offer, page_blocks, plane_spec, planes, pull, sealed

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[list[DataPlane]]:
    """An owner of eight blocks with a short lease, two of them kept for pulls, and a reader."""
    owner = plane_spec("owner", 1, host_blocks=8, pull_reserve=2, lease_seconds=0.6)
    async with planes(owner, plane_spec("reader", 2, pull_window=2)) as both:
        yield both


@pytest_asyncio.fixture(loop_scope="module")
async def plane(running: list[DataPlane]) -> AsyncIterator[DataPlane]:
    yield running[0]
    await at_rest(*running)


async def test_an_offer_that_can_never_fit_is_refused_at_once_with_both_numbers(plane: DataPlane) -> None:
    began = time.monotonic()
    with pytest.raises(InvalidRequestError, match="7 host blocks are needed, the host pool has 6"):
        await offer(plane, 7)
    assert time.monotonic() - began < 1.0


async def test_an_offer_without_blocks_is_refused(plane: DataPlane) -> None:
    with pytest.raises(InvalidRequestError):
        await offer(plane, 0)


async def test_offers_wait_in_order_for_free_blocks(plane: DataPlane) -> None:
    first = await offer(plane, 5)
    order: list[str] = []

    async def wait(name: str, count: int) -> None:
        prompt = await offer(plane, count)
        order.append(name)
        await plane.withdraw(prompt.handle.handle_id, "done")

    waiting = [asyncio.create_task(wait("big", 6))]
    await asyncio.sleep(0.05)
    waiting.append(asyncio.create_task(wait("small", 1)))
    await asyncio.sleep(0.05)
    assert order == []
    await plane.withdraw(first.handle.handle_id, "done")
    await asyncio.gather(*waiting)
    assert order == ["big", "small"]


async def test_an_offer_that_waited_in_vain_says_how_full_the_pool_is(plane: DataPlane) -> None:
    holder = await offer(plane, 6)
    with pytest.raises(OverloadedError, match="no 1 host blocks in time: 6 of 8 are in use"):
        await offer(plane, 1, timeout=0.2)
    await plane.withdraw(holder.handle.handle_id, "done")


async def test_a_handle_that_nobody_reads_ends_with_its_lease(plane: DataPlane) -> None:
    prompt = await sealed(plane, 3)
    await asyncio.sleep(0.3)
    assert (await plane.stats()).host_blocks_used == 3
    await at_rest(plane, seconds=1.0)
    assert not await plane.withdraw(prompt.handle.handle_id, "too late")


async def test_a_slow_pull_keeps_its_lease_alive(running: list[DataPlane], plane: DataPlane) -> None:
    reader = running[1]
    prompt = await sealed(plane, 5)
    seen = 0
    async for event in reader.pull("request", prompt.handle, range(5), 20.0):
        if seen < 5:
            await asyncio.sleep(0.35)
            await reader.free_blocks([event.offset])  # type: ignore[union-attr]
        seen += 1
    assert seen == 6


async def test_an_unsealed_offer_ends_at_its_timeout_but_keeps_its_blocks_for_its_writer(plane: DataPlane) -> None:
    prompt = await offer(plane, 2, timeout=0.2)
    await asyncio.sleep(0.4)
    stats = await plane.stats()
    assert (stats.handles_open, stats.host_blocks_used) == (0, 2)
    with pytest.raises(LeaseExpiredError, match="the offer ran out"):
        await prompt.publish(1)
    assert await plane.withdraw(prompt.handle.handle_id, "too late")


async def test_sealing_an_offer_that_ended_gives_its_blocks_back(plane: DataPlane) -> None:
    prompt = await offer(plane, 1, timeout=0.3)
    await prompt.publish(1)
    await asyncio.sleep(0.5)
    with pytest.raises(LeaseExpiredError):
        await prompt.seal()


async def test_publishing_out_of_order_is_refused(plane: DataPlane) -> None:
    prompt = await offer(plane, 2)
    with pytest.raises(InvalidRequestError, match="block 1 published, 0 are complete"):
        await plane.publish(prompt.handle.handle_id, 1, [5])
    with pytest.raises(InvalidRequestError, match="sealed with 0 of 2 blocks"):
        await prompt.seal()
    await plane.withdraw(prompt.handle.handle_id, "done")


async def test_a_block_that_the_engine_does_not_hold_cannot_be_freed(plane: DataPlane) -> None:
    prompt = await offer(plane, 1)
    with pytest.raises(InvalidRequestError):
        await plane.free_blocks([prompt.handle.blocks[0].offset])
    await plane.withdraw(prompt.handle.handle_id, "done")


async def test_a_handle_says_everything_that_a_reader_needs(running: list[DataPlane], plane: DataPlane) -> None:
    prompt = await offer(plane, 2)
    handle = prompt.handle
    assert (handle.owner_worker_id, handle.owner_incarnation, handle.endpoint) == ("owner", 1, plane.endpoint)
    assert (len(handle.handle_id), handle.lease_ms, handle.ready_count) == (16, 600, 0)
    assert [block.content_hash for block in handle.blocks] == [block.content_hash for block in page_blocks(2)]
    await prompt.publish(2)
    await prompt.seal()
    await pull(running[1], prompt)
