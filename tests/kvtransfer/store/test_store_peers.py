"""Stored pages lent to another worker, read over each transport by the existing pull."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import numpy as np
import pytest
import pytest_asyncio

from halfmoon.errors import IncompatibleError, LeaseExpiredError, UnavailableError
from halfmoon.v1 import kvtransfer_pb2 as pb
from kvtransfer import DataPlane, PullComplete, PulledBlock
from tests.kvtransfer.planes import at_rest, offer, plane_spec, planes
from tests.kvtransfer.store.pages import content, get, hashes, put

pytestmark = pytest.mark.asyncio(loop_scope="module")

LEASE = 2.0
Pair = tuple[DataPlane, DataPlane]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["shm", "tcp"])
async def running(request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    """An owner with a store of eight pages, and a reader."""
    transports = (str(request.param),)
    owner = plane_spec("owner", 1, host_blocks=10, store_blocks=8, lease_seconds=LEASE, transports=transports)
    async with planes(owner, plane_spec("reader", 2, transports=transports)) as (a, b):
        yield a, b


@pytest_asyncio.fixture(loop_scope="module")
async def pair(running: Pair) -> AsyncIterator[Pair]:
    yield running
    await at_rest(*running)


async def lent(pair: Pair, *numbers: int) -> pb.KvHandle | None:
    owner, reader = pair
    return await reader.store.acquire_from(owner.endpoint, hashes(*numbers), 0.0)


async def read(reader: DataPlane, handle: pb.KvHandle, indices: Sequence[int]) -> PullComplete:
    """Pulls and frees blocks. Fails the test for a wrong byte."""
    async with aclosing(reader.pull("request", handle, indices, 10.0)) as events:
        async for event in events:
            if isinstance(event, PullComplete):
                return event
            expected = content(handle.blocks[event.block_index].content_hash)
            assert np.array_equal(reader.block(event.offset), expected)
            await reader.free_blocks([event.offset])
    raise AssertionError("the pull ended without completion or error")


async def test_a_peer_reads_the_leading_run_that_is_stored(pair: Pair) -> None:
    await put(pair[0], 1, 2, 3)
    handle = await lent(pair, 1, 2, 3, 4)
    assert handle is not None
    assert [block.content_hash for block in handle.blocks] == hashes(1, 2, 3)
    assert (handle.ready_count, handle.lease_ms) == (3, LEASE * 1000)
    complete = await read(pair[1], handle, range(3))
    assert (complete.first_tokens, complete.bytes) == ((), 3 * pair[0].block(0).size)
    with pytest.raises(LeaseExpiredError):
        await read(pair[1], handle, [0])


async def test_nothing_stored_is_no_handle(pair: Pair) -> None:
    assert await lent(pair, 99, 1) is None


async def test_two_peers_share_the_same_pages(pair: Pair) -> None:
    await put(pair[0], 11, 12)
    first, second = await lent(pair, 11, 12), await lent(pair, 11)
    assert first is not None
    assert second is not None
    await asyncio.gather(read(pair[1], first, [0, 1]), read(pair[1], second, [0]))


async def test_lent_pages_stay_until_the_lease_ends_and_no_longer(pair: Pair) -> None:
    owner, _ = pair
    await put(owner, *range(20, 28))
    assert await lent(pair, *range(20, 28)) is not None
    assert await put(owner, 30) == 0
    waiting = asyncio.create_task(offer(owner, 10))
    await asyncio.sleep(LEASE / 2)
    assert (await owner.stats()).leases_active == 1
    assert not waiting.done()
    async with asyncio.timeout(LEASE):
        prompt = await waiting
    await owner.withdraw(prompt.handle.handle_id, "done")


async def test_a_lease_is_never_longer_than_the_owner_gives(pair: Pair) -> None:
    owner, reader = pair
    await put(owner, 40)
    handle = await reader.store.acquire_from(owner.endpoint, hashes(40), 0.0)
    assert handle is not None
    assert handle.lease_ms == LEASE * 1000 < plane_spec("reader", 2).lease_seconds * 1000
    await read(reader, handle, [0])


async def test_a_reader_that_leaves_early_returns_everything(pair: Pair) -> None:
    owner, reader = pair
    await put(owner, 50, 51, 52)
    handle = await lent(pair, 50, 51, 52)
    assert handle is not None
    async with aclosing(reader.pull("request", handle, range(3), 10.0)) as events:
        first = await anext(events)
    assert isinstance(first, PulledBlock)
    await reader.free_blocks([first.offset])
    assert await get(owner, 50, 51, 52) == 3


async def test_another_model_is_refused_with_both_named(pair: Pair) -> None:
    async with planes(plane_spec("other", 3, fingerprint="other")) as (stranger,):
        with pytest.raises(IncompatibleError, match="model is other, the owner's is model"):
            await stranger.store.acquire_from(pair[0].endpoint, hashes(1), 0.0)


async def test_a_peer_that_is_gone_is_an_error_in_time(pair: Pair) -> None:
    async with asyncio.timeout(5), planes(plane_spec("gone", 4)) as (gone,):
        endpoint = gone.endpoint
        await gone.close()
        with pytest.raises(UnavailableError):
            await pair[1].store.acquire_from(endpoint, hashes(1), 0.0)
