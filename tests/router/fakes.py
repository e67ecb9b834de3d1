"""Workers that write what a test tells them to, over real gRPC, registered by the real agent."""

# ruff: noqa: N802 - methods are named by the protos

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field

import grpc

from halfmoon.config import PageGeometry
from halfmoon.errors import HalfmoonError
from halfmoon.rpc import GrpcServer, RegistrationAgent, WorkerReport
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
from halfmoon.wire import geometry_to_pb
from tests.router.tiny_text import CONTEXT, END, FINGERPRINT, byte_ids

GEOMETRY = PageGeometry(layers=2, kv_heads=1, page_size=16, head_dim=4, dtype="float32")


@dataclass
class Script:
    """What all workers of a test do; `texts` are the choices' answers, repeated where there are more choices.

    A gate that is set to an event holds its tier back until the event is set. `pace` is the time between tokens,
    `prefill_seconds` that of a prompt.
    """

    texts: list[str] = field(default_factory=lambda: ["hello world"])
    cached_tokens: int = 0
    pace: float = 0.0
    prefill_seconds: float = 0.0
    prefill_gate: asyncio.Event | None = None
    decode_gate: asyncio.Event | None = None
    result_gate: asyncio.Event | None = None
    accept_gate: asyncio.Event | None = None
    prefill_error: HalfmoonError | None = None
    decode_error: HalfmoonError | None = None
    skip_position: int | None = None
    decode_releases: bool = True
    sealed: dict[bytes, asyncio.Event] = field(default_factory=dict)

    def tokens(self, choice: int, sampling: common_pb2.SamplingParams) -> Iterator[common_pb2.OutputToken]:
        """One choice from position 0 to its end."""
        ids = [*byte_ids(self.texts[choice % len(self.texts)]), END]
        for position, token_id in enumerate(ids[: sampling.max_tokens]):
            token = common_pb2.OutputToken(choice=choice, position=position, token_id=token_id)
            if token_id in {END, *sampling.stop_token_ids}:
                token.finish_reason = common_pb2.FINISH_REASON_STOP
            elif position + 1 == sampling.max_tokens:
                token.finish_reason = common_pb2.FINISH_REASON_LENGTH
            if sampling.HasField("logprobs"):
                token.logprobs.chosen.token_id = token_id
                token.logprobs.chosen.logprob = -0.5
            if position != self.skip_position:
                yield token
            if token.finish_reason:
                return


class FakeWorker(
    prefill_pb2_grpc.PrefillServicer, decode_pb2_grpc.DecodeServicer, kvtransfer_pb2_grpc.KvTransferServicer
):
    """One worker of any role. Counts what it is asked, what is cancelled, and which handles are held."""

    def __init__(self, worker_id: str, role: "router_pb2.WorkerRole.ValueType", script: Script, router: str) -> None:
        self.worker_id = worker_id
        self.script = script
        self.prefills: list[prefill_pb2.PrefillRequest] = []
        self.decodes: list[decode_pb2.DecodeRequest] = []
        self.stopped: set[tuple[str, int]] = set()
        self.handles: set[bytes] = set()
        self.withdrawn: list[bytes] = []
        self.active = 0
        self.cancelled = 0
        self.state = router_pb2.WORKER_STATE_READY
        self.stored: list[bytes] = []
        self._role = role
        self._router = router
        self._incarnation = secrets.randbits(63) + 1
        self._server = GrpcServer()
        self._agent: RegistrationAgent | None = None

    async def start(self) -> None:
        """Serves and registers."""
        self._server.add(prefill_pb2_grpc.add_PrefillServicer_to_server, self, "halfmoon.v1.Prefill")
        self._server.add(decode_pb2_grpc.add_DecodeServicer_to_server, self, "halfmoon.v1.Decode")
        self._server.add(kvtransfer_pb2_grpc.add_KvTransferServicer_to_server, self, "halfmoon.v1.KvTransfer")
        await self._server.start()
        info = router_pb2.WorkerInfo(
            worker_id=self.worker_id,
            incarnation=self._incarnation,
            address=self.address,
            role=self._role,
            model_fingerprint=FINGERPRINT,
            geometry=geometry_to_pb(GEOMETRY),
            max_model_len=CONTEXT,
        )
        self._agent = RegistrationAgent([self._router], info, self._report)
        self._agent.start()

    @property
    def address(self) -> str:
        """Where it serves."""
        return f"127.0.0.1:{self._server.port}"

    @property
    def agent(self) -> RegistrationAgent:
        """Its registration."""
        assert self._agent is not None
        return self._agent

    async def stop(self) -> None:
        """Leaves properly."""
        await self.agent.close()
        await self._server.stop()

    async def die(self) -> None:
        """Breaks off in the middle of everything, without a word to the router."""
        await self._silence()
        await self._server.stop()

    async def hang(self) -> None:
        """Says nothing more to the router, and keeps its streams."""
        await self._silence()

    async def _silence(self) -> None:
        agent = self.agent
        tasks, agent._tasks = agent._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _report(self) -> WorkerReport:
        stored, self.stored = self.stored, []
        load = router_pb2.WorkerLoad(requests_running=self.active, pages_total=1000, pages_free=1000)
        return WorkerReport(self.state, load, stored)

    async def Prefill(
        self, request: prefill_pb2.PrefillRequest, context: object
    ) -> AsyncIterator[prefill_pb2.PrefillResponse]:
        self.prefills.append(request)
        with self._counting():
            if self.script.prefill_error is not None:
                raise self.script.prefill_error
            accepted = prefill_pb2.PrefillAccepted(cached_tokens=self.script.cached_tokens)
            handle_id = request.handle_id
            if self.script.accept_gate is not None:
                await self.script.accept_gate.wait()
            if request.publish_kv:
                accepted.handle.CopyFrom(self._offer(handle_id))
            yield prefill_pb2.PrefillResponse(accepted=accepted)
            yield prefill_pb2.PrefillResponse(progress=prefill_pb2.PrefillProgress(computed_tokens=1))
            await asyncio.sleep(self.script.prefill_seconds)
            if self.script.prefill_gate is not None:
                await self.script.prefill_gate.wait()
            if request.publish_kv:
                self.script.sealed[handle_id].set()
            if self.script.result_gate is not None:
                await self.script.result_gate.wait()
            yield prefill_pb2.PrefillResponse(result=self._result(request))

    async def Withdraw(
        self, request: prefill_pb2.WithdrawPrefillRequest, context: object
    ) -> prefill_pb2.WithdrawPrefillResponse:
        self.withdrawn.append(request.handle_id)
        return prefill_pb2.WithdrawPrefillResponse()

    async def Generate(
        self, request: decode_pb2.DecodeRequest, context: object
    ) -> AsyncIterator[decode_pb2.DecodeResponse]:
        self.decodes.append(request)
        with self._counting():
            if self.script.decode_error is not None:
                raise self.script.decode_error
            accepted = decode_pb2.DecodeAccepted(cached_tokens=self.script.cached_tokens)
            yield decode_pb2.DecodeResponse(accepted=accepted)
            pulled = request.HasField("handle")
            if pulled:
                await self.script.sealed[request.handle.handle_id].wait()
                if self.script.decode_releases:
                    await self._complete(request.handle)
                yield decode_pb2.DecodeResponse(transferred=decode_pb2.DecodeTransferred(bytes=1))
            elif request.sampling.HasField("prompt_logprobs"):
                entries = _prompt_logprobs(request.prompt_token_ids)
                yield decode_pb2.DecodeResponse(prompt_logprobs=decode_pb2.DecodePromptLogprobs(entries=entries))
            async for tokens in self._steps(request, 1 if pulled else 0):
                yield decode_pb2.DecodeResponse(tokens=decode_pb2.DecodeTokens(tokens=tokens))

    async def StopChoices(
        self, request: decode_pb2.StopChoicesRequest, context: object
    ) -> decode_pb2.StopChoicesResponse:
        self.stopped.update((request.request_id, choice) for choice in request.choices)
        return decode_pb2.StopChoicesResponse(stopped=len(request.choices))

    async def Release(self, request: kvtransfer_pb2.ReleaseRequest, context: object) -> kvtransfer_pb2.ReleaseResponse:
        held = request.handle_id in self.handles
        self.handles.discard(request.handle_id)
        return kvtransfer_pb2.ReleaseResponse(released=held)

    async def Hello(self, request: kvtransfer_pb2.HelloRequest, context: object) -> kvtransfer_pb2.HelloResponse:
        return kvtransfer_pb2.HelloResponse()

    async def Watch(
        self, request: kvtransfer_pb2.WatchRequest, context: object
    ) -> AsyncIterator[kvtransfer_pb2.WatchResponse]:
        yield kvtransfer_pb2.WatchResponse()

    async def Renew(self, request: kvtransfer_pb2.RenewRequest, context: object) -> kvtransfer_pb2.RenewResponse:
        return kvtransfer_pb2.RenewResponse()

    async def Acquire(self, request: kvtransfer_pb2.AcquireRequest, context: object) -> kvtransfer_pb2.AcquireResponse:
        return kvtransfer_pb2.AcquireResponse()

    def _offer(self, handle_id: bytes) -> kvtransfer_pb2.KvHandle:
        self.handles.add(handle_id)
        self.script.sealed[handle_id] = asyncio.Event()
        return kvtransfer_pb2.KvHandle(
            handle_id=handle_id,
            owner_worker_id=self.worker_id,
            owner_incarnation=self._incarnation,
            endpoint=self.address,
        )

    async def _complete(self, handle: kvtransfer_pb2.KvHandle) -> None:
        """The reader releases what it has read."""
        async with grpc.aio.insecure_channel(handle.endpoint) as channel:
            request = kvtransfer_pb2.ReleaseRequest(handle_id=handle.handle_id)
            await kvtransfer_pb2_grpc.KvTransferStub(channel).Release(request, timeout=2)

    def _result(self, request: prefill_pb2.PrefillRequest) -> prefill_pb2.PrefillResult:
        result = prefill_pb2.PrefillResult()
        for choice in range(request.sampling.n):
            result.first_tokens.extend(list(self.script.tokens(choice, request.sampling))[:1])
        if request.sampling.HasField("prompt_logprobs"):
            result.prompt_logprobs.extend(_prompt_logprobs(request.prompt_token_ids))
        return result

    async def _steps(
        self, request: decode_pb2.DecodeRequest, first: int
    ) -> AsyncIterator[list[common_pb2.OutputToken]]:
        """One token of every choice that goes on, step by step."""
        choices = [list(self.script.tokens(choice, request.sampling)) for choice in range(request.sampling.n)]
        for position in range(first, max(map(len, choices))):
            if self.script.decode_gate is not None and position > first:
                await self.script.decode_gate.wait()
            await asyncio.sleep(self.script.pace)
            tokens = [
                choices[choice][position]
                for choice in range(len(choices))
                if position < len(choices[choice]) and (request.request_id, choice) not in self.stopped
            ]
            if tokens:
                yield tokens

    def _counting(self) -> "_Counting":
        return _Counting(self)


class _Counting:
    """Counts a call as active, and whether it ended by being cancelled."""

    def __init__(self, worker: FakeWorker) -> None:
        self._worker = worker

    def __enter__(self) -> None:
        self._worker.active += 1

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._worker.active -= 1
        if kind in {asyncio.CancelledError, GeneratorExit}:
            self._worker.cancelled += 1


def _prompt_logprobs(prompt: Sequence[int]) -> list[common_pb2.TokenLogprobs]:
    entries = [common_pb2.TokenLogprobs()]
    for token_id in prompt[1:]:
        chosen = common_pb2.TokenLogprob(token_id=token_id, logprob=-1.0, rank=1)
        entries.append(common_pb2.TokenLogprobs(chosen=chosen))
    return entries
