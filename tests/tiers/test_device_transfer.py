"""Pages go from one engine's device to the other's; at any doubt they come through the host pools."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from halfmoon.runner.runner import Runner
from halfmoon.v1 import prefill_pb2
from tests.engine.small import prompt
from tests.tiers.workers import TestWorker, decode_request, decoded, prefill_request, prefilled, sampling, worker

PROMPT = prompt(100, seed=3)
Pair = tuple[TestWorker, TestWorker]


@pytest.fixture
async def pair(runners: tuple[Runner, Runner]) -> AsyncIterator[Pair]:
    """Two workers that can move pages from device to device."""
    async with (
        worker(runners[0], role="prefill", with_devices=True) as prefill,
        worker(runners[1], role="decode", with_devices=True) as decode,
    ):
        yield prefill, decode
        await prefill.assert_at_rest()
        await decode.assert_at_rest()


async def unsplit(worker: TestWorker) -> list[int]:
    """What one worker alone answers, the first token included."""
    tokens, _ = await decoded(worker, decode_request(PROMPT, sampling()))
    return tokens[0]


async def split(pair: Pair, *, break_handle: bool = False) -> tuple[list[int], str]:
    """What decode answers after the first token, beginning when prefill accepts, and the transport that was used."""
    prefill, decode = pair
    responses = aiter(prefill.prefill.Prefill(prefill_request(PROMPT, sampling()), timeout=60))
    handle = (await anext(responses)).accepted.handle
    assert handle.device_endpoint == prefill.address
    if break_handle:
        handle.device_endpoint = decode.address
    answering = decoded(decode, decode_request(PROMPT, sampling(), handle))
    (tokens, answers), _ = await asyncio.gather(answering, _rest(responses))
    moved = next(each.transferred for each in answers if each.HasField("transferred"))
    assert moved.bytes == len(handle.blocks) * handle.blocks[0].length
    return tokens[0], moved.transport


async def _rest(responses: AsyncIterator[prefill_pb2.PrefillResponse]) -> list[prefill_pb2.PrefillResponse]:
    return [response async for response in responses]


async def test_a_split_request_answers_as_an_unsplit_one_and_host_pools_carry_nothing(pair: Pair) -> None:
    tokens, transport = await split(pair)
    assert transport == "jax"
    assert tokens == (await unsplit(pair[1]))[1:]
    assert not (await pair[1].plane.stats()).bytes_read


async def test_pages_that_do_not_come_from_the_device_come_through_the_host_pool(pair: Pair) -> None:
    """The handle names a worker that does not have the pages."""
    tokens, transport = await split(pair, break_handle=True)
    assert transport in {"shm", "tcp"}
    assert tokens == (await unsplit(pair[1]))[1:]


async def test_a_decode_worker_without_devices_reads_the_host_pool(runners: tuple[Runner, Runner]) -> None:
    async with (
        worker(runners[0], role="prefill", with_devices=True) as prefill,
        worker(runners[1], role="decode") as decode,
    ):
        tokens, transport = await split((prefill, decode))
        assert transport in {"shm", "tcp"}
        assert tokens == (await unsplit(decode))[1:]
        await prefill.assert_at_rest()


async def test_pages_that_were_sealed_long_ago_are_still_fetched(pair: Pair) -> None:
    done = await prefilled(pair[0], prefill_request(PROMPT, sampling()))
    tokens, responses = await decoded(pair[1], decode_request(PROMPT, sampling(), done.handle))
    assert [each.transferred.transport for each in responses if each.HasField("transferred")] == ["jax"]
    assert tokens[0] == (await unsplit(pair[1]))[1:]
