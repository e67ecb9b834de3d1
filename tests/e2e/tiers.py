"""A client of the tiers of a real fleet, where a router would be."""

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc

from halfmoon.errors import HalfmoonError
from halfmoon.rpc import error_from_rpc, open_channel
from halfmoon.v1 import (
    common_pb2,
    decode_pb2,
    decode_pb2_grpc,
    kvtransfer_pb2,
    kvtransfer_pb2_grpc,
    prefill_pb2,
    prefill_pb2_grpc,
    router_pb2,
)
from tests.e2e.fleet import Fleet
from tests.e2e.peers import registered

_SECONDS = 60.0
DecodeCall = grpc.aio.UnaryStreamCall[decode_pb2.DecodeRequest, decode_pb2.DecodeResponse]


def sampling(max_tokens: int = 16) -> common_pb2.SamplingParams:
    """Greedy, past the end token."""
    return common_pb2.SamplingParams(max_tokens=max_tokens, seed=1, temperature=0, ignore_eos=True)


@dataclass(frozen=True, slots=True)
class Prefilled:
    """A prompt computed to its end: its sealed handle and first token."""

    handle: kvtransfer_pb2.KvHandle
    first_token: int


@dataclass(frozen=True, slots=True)
class Tiers:
    """prefill-0 and decode-0."""

    fingerprint: str
    prefill_worker: router_pb2.WorkerInfo
    prefill: "prefill_pb2_grpc.PrefillAsyncStub"
    decode: "decode_pb2_grpc.DecodeAsyncStub"

    async def prefilled(self, prompt: Sequence[int]) -> Prefilled:
        """Computes a prompt and offers its KV."""
        request = prefill_pb2.PrefillRequest(
            request_id=secrets.token_hex(8),
            model_fingerprint=self.fingerprint,
            prompt_token_ids=prompt,
            sampling=sampling(),
            publish_kv=True,
        )
        responses = [response async for response in self.prefill.Prefill(request, timeout=_SECONDS)]
        (handle,) = [each.accepted.handle for each in responses if each.HasField("accepted")]
        return Prefilled(handle, responses[-1].result.first_tokens[0].token_id)

    def decoding(self, prompt: Sequence[int], handle: kvtransfer_pb2.KvHandle | None = None) -> DecodeCall:
        """Begins an answer, from a handle's KV or without."""
        request = decode_pb2.DecodeRequest(
            request_id=secrets.token_hex(8),
            model_fingerprint=self.fingerprint,
            prompt_token_ids=prompt,
            sampling=sampling(),
            handle=handle,
        )
        return self.decode.Generate(request, timeout=_SECONDS)

    async def decoded(self, prompt: Sequence[int], handle: kvtransfer_pb2.KvHandle | None = None) -> list[int]:
        """Token ids of an answer; those that prefill sampled are not among them."""
        responses = [response async for response in self.decoding(prompt, handle)]
        return [token.token_id for response in responses for token in response.tokens.tokens]

    async def refusal(self, prompt: Sequence[int], handle: kvtransfer_pb2.KvHandle) -> HalfmoonError:
        """Why decode gives no answer from a handle; fails if it sends any token."""
        call = self.decoding(prompt, handle)
        try:
            async for response in call:
                assert not response.HasField("tokens")
        except grpc.aio.AioRpcError as error:
            return error_from_rpc(error)
        raise AssertionError("decode answered")


async def last_news(handle: kvtransfer_pb2.KvHandle) -> kvtransfer_pb2.WatchResponse:
    """What the owner of a sealed handle says of it."""
    request = kvtransfer_pb2.WatchRequest(
        handle_id=handle.handle_id, expected_incarnation=handle.owner_incarnation, known_ready=handle.ready_count
    )
    async with open_channel(handle.endpoint) as channel:
        call = kvtransfer_pb2_grpc.KvTransferStub(channel).Watch(request, timeout=_SECONDS)
        *_, last = [response async for response in call]
    return last


async def release(handle: kvtransfer_pb2.KvHandle) -> bool:
    """Gives a handle back; whether anything was held under it."""
    async with open_channel(handle.endpoint) as channel:
        stub = kvtransfer_pb2_grpc.KvTransferStub(channel)
        answer = await stub.Release(kvtransfer_pb2.ReleaseRequest(handle_id=handle.handle_id), timeout=_SECONDS)
    return answer.released


@asynccontextmanager
async def tiers_of(fleet: Fleet) -> AsyncIterator[Tiers]:
    """Connected to both."""
    workers = await registered(fleet)
    prefill, decode = workers["prefill-0"], workers["decode-0"]
    async with open_channel(prefill.address) as to_prefill, open_channel(decode.address) as to_decode:
        yield Tiers(
            prefill.model_fingerprint,
            prefill,
            prefill_pb2_grpc.PrefillStub(to_prefill),
            decode_pb2_grpc.DecodeStub(to_decode),
        )
