"""What a tier refuses, with the reason, and before anything is reserved."""

import grpc
import pytest

from halfmoon.tier import WorkerState
from halfmoon.v1 import common_pb2
from tests.engine.small import MAX_MODEL_LEN, prompt
from tests.tiers.test_split import Pair
from tests.tiers.workers import decode_request, decoded, prefill_request, prefilled, reason, sampling


async def test_each_role_admits_its_own_work(pair: Pair) -> None:
    prefill, decode = pair
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await prefilled(decode, prefill_request(prompt(5), sampling()))
    assert reason(failed.value) == "INCOMPATIBLE"
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await decoded(prefill, decode_request(prompt(5), sampling()))
    assert reason(failed.value) == "INCOMPATIBLE"


@pytest.mark.parametrize("state", [WorkerState.STARTING, WorkerState.DRAINING])
async def test_only_a_ready_worker_takes_requests(pair: Pair, state: WorkerState) -> None:
    prefill, _ = pair
    prefill.gate.state = state
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await prefilled(prefill, prefill_request(prompt(5), sampling()))
    assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
    prefill.gate.state = WorkerState.READY


async def test_another_model_is_refused(pair: Pair) -> None:
    prefill, _ = pair
    request = prefill_request(prompt(5), sampling())
    request.model_fingerprint = "0" * 32
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await prefilled(prefill, request)
    assert reason(failed.value) == "INCOMPATIBLE"


@pytest.mark.parametrize(
    ("params", "ids", "wanted"),
    [
        (common_pb2.SamplingParams(max_tokens=4), prompt(5), "INVALID_REQUEST"),
        (common_pb2.SamplingParams(seed=4), prompt(5), "INVALID_REQUEST"),
        (sampling(stop_token_ids=[300]), prompt(5), "INVALID_REQUEST"),
        (sampling(logit_bias={4000: 1.0}), prompt(5), "INVALID_REQUEST"),
        (sampling(stop_token_ids=[5] * 257), prompt(5), "INVALID_REQUEST"),
        (sampling(n=129), prompt(5), "INVALID_REQUEST"),
        (sampling(logprobs=21), prompt(5), "INVALID_REQUEST"),
        (sampling(), (5, 300), "INVALID_REQUEST"),
        (sampling(), prompt(MAX_MODEL_LEN), "CONTEXT_LENGTH_EXCEEDED"),
    ],
)
async def test_what_would_harm_the_engine_is_refused(
    pair: Pair, params: common_pb2.SamplingParams, ids: tuple[int, ...], wanted: str
) -> None:
    """Row 4: an over-long prompt, and every id past the vocabulary, is one error."""
    prefill, decode = pair
    for call in (prefilled(prefill, prefill_request(ids, params)), decoded(decode, decode_request(ids, params))):
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await call
        assert reason(failed.value) == wanted


async def test_a_full_worker_refuses_at_once_with_a_hint(pair: Pair) -> None:
    prefill, _ = pair
    prefill.gate.inside += 64
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await prefilled(prefill, prefill_request(prompt(5), sampling()))
    assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    prefill.gate.inside -= 64


async def test_a_request_id_in_use_is_refused_and_the_first_goes_on(pair: Pair) -> None:
    _, decode = pair
    request = decode_request(prompt(20), sampling(40))
    first = decode.decode.Generate(request, timeout=60)
    await anext(aiter(first))
    for _ in range(3):
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await decoded(decode, request)
        assert reason(failed.value) == "INVALID_REQUEST"
    tokens = [token async for response in first for token in response.tokens.tokens]
    assert len(tokens) == 40
