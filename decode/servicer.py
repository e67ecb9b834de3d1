"""`halfmoon.v1.Decode` over an engine and a data plane."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import aclosing
from dataclasses import dataclass

import grpc

from decode.lease import keep_lease
from decode.receiver import Receiver, check_handle
from decode.trace import DecodeTrace
from halfmoon.config import DEADLINES, PageGeometry
from halfmoon.engine.engine import Engine
from halfmoon.engine.request import EngineRequest, Event, PromptScored, Started, Task, Tokens
from halfmoon.errors import HalfmoonError, UnavailableError
from halfmoon.tier import EventStream, Gate, engine_request
from halfmoon.v1 import decode_pb2, decode_pb2_grpc, kvtransfer_pb2
from halfmoon.wire import logprobs_to_pb, tokens_to_pb
from kvtransfer import DataPlane, PullComplete

Stream = EventStream[PullComplete]


@dataclass(slots=True)
class DecodeTier:
    """What the servicer works with once the worker is ready."""

    engine: Engine
    plane: DataPlane
    geometry: PageGeometry
    salt: bytes
    vocab: int


class DecodeServicer(decode_pb2_grpc.DecodeServicer):
    """Refuses everything until `open`."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._tier: DecodeTier | None = None

    def open(self, tier: DecodeTier) -> None:
        """From now on requests that the gate lets in are served."""
        self._tier = tier

    async def Generate(  # noqa: N802 - the name of the RPC
        self,
        request: decode_pb2.DecodeRequest,
        context: grpc.aio.ServicerContext[decode_pb2.DecodeRequest, decode_pb2.DecodeResponse],
    ) -> AsyncIterator[decode_pb2.DecodeResponse]:
        """One request; the stream's end, however it comes, leaves nothing behind."""
        with self._gate.enter("decode", request.model_fingerprint):
            tier = self._open_tier()
            task = Task.ATTACH if request.HasField("handle") else Task.GENERATE
            wanted = engine_request(request, task, vocab=tier.vocab)
            if task is Task.ATTACH:
                check_handle(request.handle, wanted.prompt, tier.salt, tier.geometry)
            remaining = context.time_remaining()
            seconds = DEADLINES.request if remaining is None else remaining
            with DecodeTrace(request, task) as trace:
                async with aclosing(_generate(tier, wanted, request.handle, seconds, trace)) as responses:
                    async for response in responses:
                        yield response

    async def StopChoices(  # noqa: N802 - the name of the RPC
        self,
        request: decode_pb2.StopChoicesRequest,
        context: grpc.aio.ServicerContext[decode_pb2.StopChoicesRequest, decode_pb2.StopChoicesResponse],
    ) -> decode_pb2.StopChoicesResponse:
        """Ends choices when the step under way ends."""
        del context
        stopped = await asyncio.wrap_future(
            self._open_tier().engine.stop_choices(request.request_id, list(request.choices))
        )
        return decode_pb2.StopChoicesResponse(stopped=stopped)

    def _open_tier(self) -> DecodeTier:
        if self._tier is None:
            raise UnavailableError("this worker is not open yet")
        return self._tier


async def _generate(
    tier: DecodeTier, request: EngineRequest, handle: kvtransfer_pb2.KvHandle, seconds: float, trace: DecodeTrace
) -> AsyncGenerator[decode_pb2.DecodeResponse, None]:
    events = Stream()
    moving: asyncio.Task[None] | None = None
    if request.task is Task.ATTACH:
        moving = asyncio.create_task(_ending_on_error(tier, request.request_id, keep_lease(handle)))
    trace.enter("decode queue")
    tier.engine.submit(request, events.put)
    try:
        async for event in events:
            trace.saw(event)
            if isinstance(event, Started) and moving is not None:
                moving.cancel()
                pull = _pull(tier, request.request_id, handle, event.missing, seconds, events)
                with trace.wait_for_kv(len(event.missing)).current():
                    moving = asyncio.create_task(_ending_on_error(tier, request.request_id, pull))
            response = _respond(event)
            if response is not None:
                yield response
    finally:
        if not events.ended:
            tier.engine.abort(request.request_id)
        if moving is not None:
            moving.cancel()
            await asyncio.gather(moving, return_exceptions=True)


async def _pull(
    tier: DecodeTier,
    request_id: str,
    handle: kvtransfer_pb2.KvHandle,
    missing: tuple[int, ...],
    seconds: float,
    events: Stream,
) -> None:
    receiver = Receiver(tier.engine, tier.plane, tier.geometry)
    events.put(await receiver.receive(request_id, handle, missing, seconds))


async def _ending_on_error(tier: DecodeTier, request_id: str, work: Coroutine[None, None, None]) -> None:
    """Work without which the request cannot go on: its error ends the request."""
    try:
        await work
    except HalfmoonError as error:
        tier.engine.abort(request_id, error)


def _respond(event: Event | PullComplete) -> decode_pb2.DecodeResponse | None:
    match event:
        case Started():
            return decode_pb2.DecodeResponse(accepted=decode_pb2.DecodeAccepted(cached_tokens=event.cached_tokens))
        case PromptScored():
            entries = [logprobs_to_pb(each) for each in event.entries]
            return decode_pb2.DecodeResponse(prompt_logprobs=decode_pb2.DecodePromptLogprobs(entries=entries))
        case Tokens():
            return decode_pb2.DecodeResponse(tokens=decode_pb2.DecodeTokens(tokens=tokens_to_pb(event.tokens)))
        case PullComplete():
            moved = decode_pb2.DecodeTransferred(bytes=event.bytes, transport=event.transport, seconds=event.seconds)
            return decode_pb2.DecodeResponse(transferred=moved)
        case _:
            return None
