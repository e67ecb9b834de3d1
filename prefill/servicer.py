"""`halfmoon.v1.Prefill` over an engine and a data plane."""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

import grpc

from halfmoon.config import DEADLINES, PageGeometry
from halfmoon.engine.engine import Engine
from halfmoon.engine.request import EngineRequest, Event, PagesReady, Progress, PromptScored, Started, Task, Tokens
from halfmoon.errors import HalfmoonError, UnavailableError
from halfmoon.request import OutputToken, PositionLogprobs
from halfmoon.telemetry import conventions as names
from halfmoon.tier import EventStream, Gate, engine_request
from halfmoon.v1 import kvtransfer_pb2, prefill_pb2, prefill_pb2_grpc
from halfmoon.wire import logprobs_to_pb, tokens_to_pb
from kvtransfer import DataPlane
from prefill.publisher import Publisher, offered_blocks
from prefill.trace import PrefillTrace

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class PrefillTier:
    """What the servicer works with once the worker is ready."""

    engine: Engine
    plane: DataPlane
    geometry: PageGeometry
    salt: bytes
    vocab: int


@dataclass(slots=True)
class _Outcome:
    """What a prompt gave."""

    tokens: tuple[OutputToken, ...] = ()
    prompt_logprobs: tuple[PositionLogprobs, ...] = field(default=())

    def message(self) -> prefill_pb2.PrefillResponse:
        result = prefill_pb2.PrefillResult(
            first_tokens=tokens_to_pb(self.tokens),
            prompt_logprobs=[logprobs_to_pb(each) for each in self.prompt_logprobs],
        )
        return prefill_pb2.PrefillResponse(result=result)


class PrefillServicer(prefill_pb2_grpc.PrefillServicer):
    """Refuses everything until `open`."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._tier: PrefillTier | None = None

    def open(self, tier: PrefillTier) -> None:
        """From now on requests that the gate lets in are served."""
        self._tier = tier

    async def Prefill(  # noqa: N802 - the name of the RPC
        self,
        request: prefill_pb2.PrefillRequest,
        context: grpc.aio.ServicerContext[prefill_pb2.PrefillRequest, prefill_pb2.PrefillResponse],
    ) -> AsyncGenerator[prefill_pb2.PrefillResponse, None]:
        """One prompt; the stream's end, however it comes, leaves nothing behind but a sealed handle."""
        with self._gate.enter("prefill", request.model_fingerprint):
            if self._tier is None:
                raise UnavailableError("this worker is not open yet")
            wanted = engine_request(request, Task.PREFILL, vocab=self._tier.vocab, publish=request.publish_kv)
            remaining = context.time_remaining()
            seconds = DEADLINES.request if remaining is None else remaining
            run = _run_published if request.publish_kv else _run_alone
            with PrefillTrace(request) as trace:
                async with aclosing(run(self._tier, wanted, seconds, trace)) as responses:
                    async for response in responses:
                        yield response


async def _run_alone(
    tier: PrefillTier, request: EngineRequest, seconds: float, trace: PrefillTrace
) -> AsyncGenerator[prefill_pb2.PrefillResponse, None]:
    del seconds  # the gRPC deadline cancels the call
    outcome = _Outcome()
    events = EventStream[Event]()
    trace.enter("prefill queue")
    tier.engine.submit(request, events.put)
    try:
        async for event in events:
            trace.saw(event)
            response = _respond(event, outcome, None)
            if response is not None:
                yield response
        yield outcome.message()
    finally:
        if not events.ended:
            tier.engine.abort(request.request_id)


async def _run_published(
    tier: PrefillTier, request: EngineRequest, seconds: float, trace: PrefillTrace
) -> AsyncGenerator[prefill_pb2.PrefillResponse, None]:
    blocks = offered_blocks(request.prompt, tier.salt, tier.geometry)
    trace.enter("offer", {names.KV_PAGES: len(blocks)})
    handle = await tier.plane.offer(request.request_id, blocks, seconds)
    publisher = Publisher(tier.plane, handle)
    outcome = _Outcome()
    events = EventStream[Event]()
    sealed = False
    trace.enter("prefill queue")
    tier.engine.submit(request, events.put)
    try:
        async for event in events:
            trace.saw(event)
            if isinstance(event, PagesReady):
                publisher.add(event)
                continue
            response = _respond(event, outcome, handle)
            if response is not None:
                yield response
        yield outcome.message()
        await publisher.seal(outcome.tokens)
        sealed = True
    finally:
        if not events.ended:
            tier.engine.abort(request.request_id)
        if not sealed:
            await publisher.cancel()
            await _withdraw(tier.plane, handle, request.request_id)


async def _withdraw(plane: DataPlane, handle: kvtransfer_pb2.KvHandle, request_id: str) -> None:
    """A plane that does not answer is no reason to hide why the prefill ended; its death is seen elsewhere."""
    with suppress(HalfmoonError):
        await plane.withdraw(handle.handle_id, f"prefill of request {request_id} ended early")


def _respond(
    event: Event, outcome: _Outcome, handle: kvtransfer_pb2.KvHandle | None
) -> prefill_pb2.PrefillResponse | None:
    match event:
        case Started():
            accepted = prefill_pb2.PrefillAccepted(handle=handle, cached_tokens=event.cached_tokens)
            return prefill_pb2.PrefillResponse(accepted=accepted)
        case Progress():
            return prefill_pb2.PrefillResponse(progress=prefill_pb2.PrefillProgress(computed_tokens=event.computed))
        case PromptScored():
            outcome.prompt_logprobs = event.entries
        case Tokens():
            outcome.tokens = event.tokens
        case _:
            pass
    return None
