"""`halfmoon.v1.Prefill` over an engine and a data plane."""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass

import grpc

from halfmoon.engine.request import EngineRequest, Event, PagesReady, Progress, PromptScored, Started, Task, Tokens
from halfmoon.errors import HalfmoonError
from halfmoon.request import OutputToken, PositionLogprobs
from halfmoon.telemetry import conventions as names
from halfmoon.tier import EventStream, Gate, TierParts, engine_request, seconds_left
from halfmoon.v1 import kvtransfer_pb2, prefill_pb2, prefill_pb2_grpc
from halfmoon.wire import logprobs_to_pb, tokens_to_pb
from kvtransfer import DataPlane
from kvtransfer.device import DevicePlane
from prefill.publisher import Publisher, offered_blocks
from prefill.trace import PrefillTrace

_log = logging.getLogger(__name__)


Parts = TierParts[DataPlane]


@dataclass(slots=True)
class _Outcome:
    """What a prompt gave."""

    tokens: tuple[OutputToken, ...] = ()
    prompt_logprobs: tuple[PositionLogprobs, ...] = ()

    def message(self) -> prefill_pb2.PrefillResponse:
        result = prefill_pb2.PrefillResult(
            first_tokens=tokens_to_pb(self.tokens),
            prompt_logprobs=[logprobs_to_pb(each) for each in self.prompt_logprobs],
        )
        return prefill_pb2.PrefillResponse(result=result)


class PrefillServicer(prefill_pb2_grpc.PrefillServicer):
    """Serves the requests that the gate lets in."""

    def __init__(self, gate: Gate, parts: Parts, devices: DevicePlane | None = None) -> None:
        self._gate = gate
        self._parts = parts
        self._devices = devices

    async def Prefill(  # noqa: N802 - the name of the RPC
        self,
        request: prefill_pb2.PrefillRequest,
        context: grpc.aio.ServicerContext[prefill_pb2.PrefillRequest, prefill_pb2.PrefillResponse],
    ) -> AsyncGenerator[prefill_pb2.PrefillResponse, None]:
        """One prompt; the stream's end, however it comes, leaves nothing behind but a sealed handle."""
        with self._gate.enter("prefill", request.model_fingerprint, request.request_id):
            wanted = engine_request(request, Task.PREFILL, vocab=self._parts.vocab, publish=request.publish_kv)
            with PrefillTrace(request) as trace:
                if request.publish_kv:
                    running = _run_published(
                        self._parts, self._devices, wanted, seconds_left(context), trace, handle_id=request.handle_id
                    )
                else:
                    running = _run_alone(self._parts, wanted, trace)
                async with aclosing(running) as responses:
                    async for response in responses:
                        yield response

    async def Withdraw(  # noqa: N802 - the name of the RPC
        self,
        request: prefill_pb2.WithdrawPrefillRequest,
        context: grpc.aio.ServicerContext[prefill_pb2.WithdrawPrefillRequest, prefill_pb2.WithdrawPrefillResponse],
    ) -> prefill_pb2.WithdrawPrefillResponse:
        """Gives back what was offered under a handle id, or makes sure that nothing will be."""
        del context
        withdrawn = await self._parts.plane.withdraw(request.handle_id, "its caller has gone")
        return prefill_pb2.WithdrawPrefillResponse(withdrawn=withdrawn)


async def _run_alone(
    parts: Parts, request: EngineRequest, trace: PrefillTrace
) -> AsyncGenerator[prefill_pb2.PrefillResponse, None]:
    outcome = _Outcome()
    events = EventStream[Event]()
    trace.enter("prefill queue")
    parts.engine.submit(request, events.put)
    try:
        async for event in events:
            trace.saw(event)
            response = _respond(event, outcome, None)
            if response is not None:
                yield response
        yield outcome.message()
    finally:
        if not events.ended:
            parts.engine.abort(request.request_id)


async def _run_published(
    parts: Parts,
    devices: DevicePlane | None,
    request: EngineRequest,
    seconds: float,
    trace: PrefillTrace,
    *,
    handle_id: bytes,
) -> AsyncGenerator[prefill_pb2.PrefillResponse, None]:
    blocks = offered_blocks(request.prompt, parts.salt, parts.geometry)
    trace.enter("offer", {names.KV_PAGES: len(blocks)})
    handle = await parts.plane.offer(request.request_id, blocks, seconds, handle_id)
    publisher = Publisher(parts.plane, handle, devices, seconds=seconds)
    outcome = _Outcome()
    events = EventStream[Event]()
    sealed = False
    trace.enter("prefill queue")
    parts.engine.submit(request, events.put)
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
            parts.engine.abort(request.request_id)
        if not sealed:
            await publisher.cancel()
            await _withdraw(parts.plane, handle, request.request_id)


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
