"""Prefill and decode over gRPC and the data plane, with a small model."""

import asyncio
import os
import signal

import grpc
import pytest

from halfmoon.runner.runner import Runner
from halfmoon.v1 import decode_pb2, kvtransfer_pb2
from tests.engine.small import PAGE_SIZE, prompt
from tests.tiers.workers import (
    TestWorker,
    decode_request,
    decoded,
    prefill_request,
    prefilled,
    reason,
    sampling,
    worker,
)

Pair = tuple[TestWorker, TestWorker]


@pytest.mark.parametrize("length", [3, PAGE_SIZE, 75])
@pytest.mark.parametrize("fields", [{}, {"n": 3, "temperature": 1.0, "top_p": 0.9}, {"frequency_penalty": 1.0}])
async def test_split_and_whole_give_equal_tokens(pair: Pair, length: int, fields: dict[str, float]) -> None:
    prefill, decode = pair
    ids, params = prompt(length, length), sampling(10, **fields)
    whole, _ = await decoded(decode, decode_request(ids, params))
    first = await prefilled(prefill, prefill_request(ids, params))
    rest, responses = await decoded(decode, decode_request(ids, params, first.handle))
    joined = {token.choice: [token.token_id, *rest[token.choice]] for token in first.result.first_tokens}
    assert joined == whole
    assert [response.WhichOneof("event") for response in responses][:1] == ["accepted"]


async def test_every_page_of_a_fresh_prompt_is_moved_once(pair: Pair) -> None:
    prefill, decode = pair
    ids = prompt(75, 5)
    first = await prefilled(prefill, prefill_request(ids, sampling()))
    _, responses = await decoded(decode, decode_request(ids, sampling(), first.handle))
    (moved,) = [each.transferred for each in responses if each.HasField("transferred")]
    assert moved.bytes == sum(block.length for block in first.handle.blocks)
    assert len(first.handle.blocks) == 5
    assert moved.transport == "shm"


@pytest.mark.parametrize("max_tokens", [1, 3])
async def test_the_transfer_is_told_before_any_token_and_always(pair: Pair, max_tokens: int) -> None:
    prefill, decode = pair
    ids, params = prompt(75, 21), sampling(max_tokens)
    first = await prefilled(prefill, prefill_request(ids, params))
    _, responses = await decoded(decode, decode_request(ids, params, first.handle))
    kinds = [response.WhichOneof("event") for response in responses]
    assert kinds == ["accepted", "transferred", *["tokens"] * (max_tokens - 1)]


async def test_decode_pulls_while_prefill_still_computes(pair: Pair) -> None:
    """The stream to decode opens at `accepted`; its pages wait for the chunks."""
    prefill, decode = pair
    ids, params = prompt(200, 6), sampling(6)
    call = prefill.prefill.Prefill(prefill_request(ids, params), timeout=60)
    accepted = await anext(aiter(call))
    generation = asyncio.create_task(decoded(decode, decode_request(ids, params, accepted.accepted.handle)))
    results = [response.result async for response in call if response.HasField("result")]
    rest, _ = await generation
    whole, _ = await decoded(decode, decode_request(ids, params))
    assert [results[0].first_tokens[0].token_id, *rest[0]] == whole[0]


async def test_pages_that_decode_has_cached_are_not_moved_again(pair: Pair) -> None:
    """Row 14: also a whole hit tells prefill, whose blocks are released."""
    prefill, decode = pair
    ids, params = prompt(4 * PAGE_SIZE, 7), sampling(6)
    moved = []
    for _ in range(2):
        first = await prefilled(prefill, prefill_request(ids, params))
        _, responses = await decoded(decode, decode_request(ids, params, first.handle))
        moved += [each.transferred.bytes for each in responses if each.HasField("transferred")]
        await prefill.assert_at_rest()
    assert moved[0] > 0
    assert moved[1] == 0


async def test_a_prompt_alone_is_scored_and_nothing_is_offered(pair: Pair) -> None:
    prefill, _ = pair
    request = prefill_request(prompt(20, 8), sampling(0, prompt_logprobs=1), publish=False)
    done = await prefilled(prefill, request)
    assert len(done.result.prompt_logprobs) == 20
    assert list(done.result.first_tokens) == []
    assert not done.handle.handle_id


@pytest.mark.parametrize("events", [1, 2, 4])
async def test_a_cancelled_prefill_leaves_nothing(pair: Pair, events: int) -> None:
    """Row 8."""
    prefill, _ = pair
    call = prefill.prefill.Prefill(prefill_request(prompt(230, 9), sampling()), timeout=60)
    stream = aiter(call)
    for _ in range(events):
        await anext(stream)
    call.cancel()
    await prefill.assert_at_rest(1.0)


async def test_a_sealed_handle_that_nobody_reads_is_released_by_its_reader_or_the_lease(
    runners: tuple[Runner, Runner],
) -> None:
    async with worker(runners[0], role="prefill", lease_seconds=0.5) as prefill:
        await prefilled(prefill, prefill_request(prompt(40, 10), sampling()))
        assert (await prefill.plane.stats()).handles_open == 1
        await prefill.assert_at_rest(5.0)


async def test_a_request_that_waits_for_pages_keeps_its_lease(runners: tuple[Runner, Runner]) -> None:
    """The decode worker is full for longer than the lease lasts."""
    async with (
        worker(runners[0], role="prefill", lease_seconds=0.4) as prefill,
        worker(runners[1], role="decode", pages=16) as decode,
    ):
        blocker = decode.decode.Generate(decode_request(prompt(200, 11), sampling(50)), timeout=60)
        await anext(aiter(blocker))
        ids, params = prompt(100, 12), sampling(4)
        first = await prefilled(prefill, prefill_request(ids, params))
        waiting = asyncio.create_task(decoded(decode, decode_request(ids, params, first.handle)))
        await asyncio.sleep(1.5)
        blocker.cancel()
        rest, _ = await waiting
        assert len(rest[0]) == 3
        await prefill.assert_at_rest()
        await decode.assert_at_rest()


@pytest.mark.parametrize("after", [1, 2, 3])
async def test_a_cancelled_generation_leaves_nothing_on_either_side(pair: Pair, after: int) -> None:
    prefill, decode = pair
    ids, params = prompt(200, 13), sampling(40)
    first = await prefilled(prefill, prefill_request(ids, params))
    call = decode.decode.Generate(decode_request(ids, params, first.handle), timeout=60)
    stream = aiter(call)
    for _ in range(after):
        await anext(stream)
    call.cancel()
    await decode.assert_at_rest(2.0)
    await prefill.plane.withdraw(first.handle.handle_id, "the router releases what decode did not")


async def test_stopped_choices_end_at_once(pair: Pair) -> None:
    """Row 6 of the API's faults: the stream ends when no choice is left."""
    _, decode = pair
    request = decode_request(prompt(20, 14), sampling(200, n=2))
    stream = aiter(decode.decode.Generate(request, timeout=60))
    for _ in range(4):
        await anext(stream)
    stopping = decode_pb2.StopChoicesRequest(request_id=request.request_id, choices=[0, 1])
    assert (await decode.decode.StopChoices(stopping, timeout=5)).stopped == 2
    left = [response async for response in stream]
    assert len(left) < 20


async def test_a_failed_prefill_reaches_decode_at_once(pair: Pair) -> None:
    """Row 2."""
    prefill, decode = pair
    ids, params = prompt(230, 15), sampling()
    call = prefill.prefill.Prefill(prefill_request(ids, params), timeout=60)
    accepted = await anext(aiter(call))
    generation = asyncio.create_task(decoded(decode, decode_request(ids, params, accepted.accepted.handle)))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await asyncio.wait_for(generation, 2.0)
    assert reason(failed.value) in {"KV_TRANSFER_FAILED", "LEASE_EXPIRED"}


async def test_a_killed_owner_fails_the_transfer(runners: tuple[Runner, Runner]) -> None:
    """What was offered by a process that is gone is refused, and the decode worker serves on."""
    async with worker(runners[1], role="decode") as decode:
        async with worker(runners[0], role="prefill") as prefill:
            ids, params = prompt(75, 16), sampling()
            first = await prefilled(prefill, prefill_request(ids, params))
            os.kill(prefill.plane.pid, signal.SIGKILL)
            await asyncio.wait_for(asyncio.shield(prefill.plane.died), 5)
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await decoded(decode, decode_request(ids, params, first.handle))
        assert reason(failed.value) == "KV_TRANSFER_FAILED"
        await decode.assert_at_rest()
        assert len((await decoded(decode, decode_request(ids, params)))[0][0]) == 8


async def test_a_handle_of_another_prompt_is_refused(pair: Pair) -> None:
    """Row 15: what a block holds decides, never its place."""
    prefill, decode = pair
    params = sampling()
    first = await prefilled(prefill, prefill_request(prompt(75, 17), params))
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await decoded(decode, decode_request(prompt(75, 18), params, first.handle))
    assert reason(failed.value) == "KV_TRANSFER_FAILED"
    await prefill.plane.withdraw(first.handle.handle_id, "not wanted")


async def test_a_forged_handle_reads_nothing(pair: Pair) -> None:
    prefill, decode = pair
    ids, params = prompt(75, 19), sampling()
    first = await prefilled(prefill, prefill_request(ids, params))
    forged = kvtransfer_pb2.KvHandle()
    forged.CopyFrom(first.handle)
    forged.handle_id = bytes(16)
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await decoded(decode, decode_request(ids, params, forged))
    assert reason(failed.value) in {"KV_TRANSFER_FAILED", "LEASE_EXPIRED"}
    await prefill.plane.withdraw(first.handle.handle_id, "not wanted")


async def test_a_transfer_that_breaks_unexpectedly_ends_its_request(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefill, decode = pair
    ids, params = prompt(75, 20), sampling()
    first = await prefilled(prefill, prefill_request(ids, params))

    def broken(offset: int) -> None:
        raise ValueError(f"no block at {offset}")

    monkeypatch.setattr(decode.plane, "block", broken)
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await asyncio.wait_for(decoded(decode, decode_request(ids, params, first.handle)), 5)
    assert failed.value.code() is grpc.StatusCode.INTERNAL
    await prefill.plane.withdraw(first.handle.handle_id, "not wanted")
