"""Two real data planes, end to end, over each transport. After every test all gauges are zero."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

import pytest
import pytest_asyncio

from halfmoon.errors import LeaseExpiredError, StaleIncarnationError, TransferError
from halfmoon.request import FinishReason, Logprob, PositionLogprobs
from halfmoon.v1 import kvtransfer_pb2 as pb
from kvtransfer import DataPlane, PullComplete, PulledBlock
from tests.kvtransfer.kinds import NAMES
from tests.kvtransfer.planes import FIRST, GEOMETRY, Prompt, at_rest, offer, plane_spec, planes, pull, sealed, take

pytestmark = pytest.mark.asyncio(loop_scope="module")

BLOCK_BYTES = GEOMETRY.block_bytes


@dataclass
class Pair:
    """The owner of blocks, and a reader with a window of eight."""

    owner: DataPlane
    reader: DataPlane
    transport: str


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=NAMES)
async def running(request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    name = str(request.param)
    specs = [
        plane_spec(who, number, transports=(name,), pull_window=8) for number, who in ((1, "owner"), (2, "reader"))
    ]
    async with planes(*specs) as (owner, reader):
        yield Pair(owner, reader, name)


@pytest_asyncio.fixture(loop_scope="module")
async def pair(running: Pair) -> AsyncIterator[Pair]:
    yield running
    await at_rest(running.owner, running.reader)


async def free(plane: DataPlane, events: Sequence[PulledBlock | PullComplete]) -> None:
    """Frees all blocks of some events."""
    await plane.free_blocks([event.offset for event in events if isinstance(event, PulledBlock)])


async def blocks_used(plane: DataPlane, count: int) -> None:
    """Returns when so many host blocks are in use; fails the test when they are not in two seconds."""
    for _ in range(100):
        if (await plane.stats()).host_blocks_used == count:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"not {count} host blocks: {await plane.stats()}")


async def test_a_sealed_prompt_arrives_whole_and_is_released(pair: Pair) -> None:
    prompt = await sealed(pair.owner, 20)
    assert (await pair.owner.stats()).leases_active == 1
    _, complete = await pull(pair.reader, prompt)
    assert (complete.first_tokens, complete.transport) == ((FIRST,), pair.transport)
    assert complete.bytes == 20 * BLOCK_BYTES
    assert complete.seconds > 0
    assert (await pair.owner.stats()).handles_open == 0


async def test_first_tokens_keep_their_log_probabilities(pair: Pair) -> None:
    logprobs = PositionLogprobs(Logprob(7, -0.5, 1), (Logprob(7, -0.5, 1), Logprob(3, -1.5, 2)))
    tokens = (
        replace(FIRST, token_id=7, logprobs=logprobs),
        replace(FIRST, choice=1, finish=FinishReason.STOP),
    )
    prompt = await offer(pair.owner, 1)
    await prompt.publish(1)
    await prompt.seal(*tokens)
    assert (await pull(pair.reader, prompt))[1].first_tokens == tokens


async def test_blocks_arrive_while_later_ones_are_still_computed(pair: Pair) -> None:
    prompt = await offer(pair.owner, 6)
    async with aclosing(pair.reader.pull("request", prompt.handle, range(6), 20.0)) as events:
        for index in range(6):
            await prompt.publish(1)
            event = await anext(events)
            assert isinstance(event, PulledBlock)
            assert event.block_index == index
            await take(pair.reader, prompt, event)
        await prompt.seal(FIRST)
        assert isinstance(await anext(events), PullComplete)


async def test_blocks_ready_before_the_handle_was_sent_are_not_asked_for_again(pair: Pair) -> None:
    prompt = await sealed(pair.owner, 4)
    checksums = [int(index) for index in range(4)]
    handle = pb.KvHandle()
    handle.CopyFrom(prompt.handle)
    handle.ready_count = 4
    for block, checksum in zip(handle.blocks, checksums, strict=True):
        block.checksum = checksum
    with pytest.raises(TransferError, match="another checksum"):
        await pull(pair.reader, prompt, handle=handle)
    assert (await pull(pair.reader, prompt))[1].bytes == 4 * BLOCK_BYTES


async def test_only_the_blocks_asked_for_are_moved(pair: Pair) -> None:
    prompt = await sealed(pair.owner, 6)
    assert (await pull(pair.reader, prompt, [1, 4]))[1].bytes == 2 * BLOCK_BYTES


async def test_no_blocks_means_the_first_tokens_alone_and_still_releases(pair: Pair) -> None:
    prompt = await sealed(pair.owner, 3)
    _, complete = await pull(pair.reader, prompt, [])
    assert (complete.first_tokens, complete.bytes, complete.transport) == ((FIRST,), 0, "")


async def test_a_pull_holds_no_more_than_its_window(pair: Pair) -> None:
    prompt = await sealed(pair.owner, 10)
    async with aclosing(pair.reader.pull("request", prompt.handle, range(10), 20.0)) as events:
        held = [await anext(events) for _ in range(8)]
        more = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0.1)
        assert not more.done()
        assert (await pair.reader.stats()).host_blocks_used == 8
        await free(pair.reader, held)
        await free(pair.reader, [await more, *[event async for event in events]])


async def test_a_cancelled_pull_gives_back_what_it_did_not_yield(pair: Pair) -> None:
    prompt = await offer(pair.owner, 20)
    await prompt.publish(6)
    taken: list[PulledBlock | PullComplete] = []
    two = asyncio.Event()

    async def consume() -> None:
        async for event in pair.reader.pull("request", prompt.handle, range(20), 20.0):
            taken.append(event)
            if len(taken) == 2:
                two.set()
                await asyncio.sleep(60)

    consuming = asyncio.create_task(consume())
    await two.wait()
    consuming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consuming
    await blocks_used(pair.reader, 2)
    await free(pair.reader, taken)
    await pair.owner.withdraw(prompt.handle.handle_id, "aborted")


async def test_a_withdrawal_reaches_the_reader_at_once_with_its_reason(pair: Pair) -> None:
    prompt = await offer(pair.owner, 4)
    await prompt.publish(2)
    pulling = asyncio.create_task(pull(pair.reader, prompt))
    await asyncio.sleep(0.2)
    began = time.monotonic()
    assert await pair.owner.withdraw(prompt.handle.handle_id, "prefill ran out of memory")
    with pytest.raises(TransferError, match="prefill ran out of memory"):
        await pulling
    assert time.monotonic() - began < 0.5
    assert not await pair.owner.withdraw(prompt.handle.handle_id, "again")


async def test_a_released_handle_cannot_be_pulled(pair: Pair) -> None:
    prompt = await sealed(pair.owner, 2)
    await pull(pair.reader, prompt)
    with pytest.raises(LeaseExpiredError):
        await pull(pair.reader, prompt)


async def test_a_handle_of_another_incarnation_is_refused_with_both_named(pair: Pair) -> None:
    prompt = await sealed(pair.owner, 1)
    handle = pb.KvHandle()
    handle.CopyFrom(prompt.handle)
    handle.owner_incarnation = 0xBAD
    with pytest.raises(StaleIncarnationError, match=r"incarnation bad, this is 1"):
        await pull(pair.reader, prompt, handle=handle)
    await pull(pair.reader, prompt)


async def test_a_handle_of_another_model_or_geometry_is_refused_with_both_named(pair: Pair) -> None:
    prompt = await sealed(pair.owner, 1)
    handle = pb.KvHandle()
    handle.CopyFrom(prompt.handle)
    handle.model_fingerprint = "other"
    with pytest.raises(TransferError, match="model is other, this worker's is model"):
        await pull(pair.reader, prompt, handle=handle)
    handle.CopyFrom(prompt.handle)
    handle.geometry.kv_heads = 5
    with pytest.raises(TransferError, match=r"kv_heads=5.*kv_heads=3"):
        await pull(pair.reader, prompt, handle=handle)
    await pull(pair.reader, prompt)


async def test_a_block_that_changed_after_its_checksum_is_never_delivered(pair: Pair) -> None:
    prompt = await sealed(pair.owner, 5)
    pair.owner.block(prompt.handle.blocks[3].offset)[17] ^= 1
    with pytest.raises(TransferError, match="block 3 came over"):
        await pull(pair.reader, prompt, [3])
    await pair.owner.withdraw(prompt.handle.handle_id, "damaged")


async def test_a_pull_ends_at_its_timeout(pair: Pair) -> None:
    prompt = await offer(pair.owner, 2)
    with pytest.raises(TransferError, match="TRANSFERRING until its deadline"):
        await pull(pair.reader, prompt, timeout=0.3)
    await pair.owner.withdraw(prompt.handle.handle_id, "too late")


async def test_several_pulls_share_the_planes(pair: Pair) -> None:
    prompts = [await sealed(pair.owner, 3) for _ in range(8)]
    before = (await pair.reader.stats()).transfers_ended["COMPLETE"]
    await asyncio.gather(*(pull(pair.reader, prompt) for prompt in prompts))
    assert (await pair.reader.stats()).transfers_ended["COMPLETE"] == before + 8


async def test_after_an_abort_storm_nothing_is_left_and_everything_works(pair: Pair) -> None:
    """Pulls that overlap their prompt's computation; some are cancelled, some lose their owner, some complete."""
    rng = random.Random(0)

    async def compute(prompt: Prompt) -> None:
        for _ in prompt.handle.blocks:
            await asyncio.sleep(rng.random() * 0.005)
            await prompt.publish(1)
        await prompt.seal(FIRST)

    async def one() -> None:
        prompt = await offer(pair.owner, rng.randint(1, 6))
        computing = asyncio.create_task(compute(prompt))
        pulling = asyncio.create_task(pull(pair.reader, prompt))
        victim = rng.choice([computing, pulling, None])
        if victim is not None:
            await asyncio.sleep(rng.random() * 0.03)
            victim.cancel()
        await asyncio.gather(computing, return_exceptions=True)
        if computing.cancelled():
            await pair.owner.withdraw(prompt.handle.handle_id, "aborted")
        (end,) = await asyncio.gather(pulling, return_exceptions=True)
        assert not isinstance(end, AssertionError)
        await pair.owner.withdraw(prompt.handle.handle_id, "done")

    await asyncio.gather(*(one() for _ in range(200)))
    await at_rest(pair.owner, pair.reader)
    await pull(pair.reader, await sealed(pair.owner, 20))


async def test_aborted_offers_leave_nothing_even_when_they_had_just_been_granted(pair: Pair) -> None:
    rng = random.Random(1)

    async def one() -> None:
        offering = asyncio.create_task(offer(pair.owner, rng.randint(1, 32)))
        await asyncio.sleep(rng.random() * 0.02)
        if offering.cancel():
            await asyncio.gather(offering, return_exceptions=True)
        if not offering.cancelled():
            await pair.owner.withdraw(offering.result().handle.handle_id, "aborted")

    await asyncio.gather(*(one() for _ in range(200)))


async def test_an_owner_is_drained_once_its_handles_have_been_read(pair: Pair) -> None:
    assert await pair.owner.drained(0)
    prompt = await sealed(pair.owner, 3)
    assert not await pair.owner.drained(0.1)
    draining = asyncio.create_task(pair.owner.drained(10))
    await pull(pair.reader, prompt)
    assert await draining
