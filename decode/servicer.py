"""`halfmoon.v1.Decode` over an engine and a data plane."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing

import grpc

from decode.lease import keep_lease_of
from decode.receiver import Receiver, check_handle
from decode.trace import DecodeTrace
from halfmoon.engine.request import EngineRequest, Event, PromptScored, Started, Task, Tokens
from halfmoon.errors import HalfmoonError, InternalError
from halfmoon.tier import EventStream, Gate, TierParts, engine_request, seconds_left
from halfmoon.v1 import decode_pb2, decode_pb2_grpc, kvtransfer_pb2
from halfmoon.wire import logprobs_to_pb, tokens_to_pb
from kvtransfer import DataPlane, PullComplete
from kvtransfer.device import DevicePlane

_log = logging.getLogger(__name__)

Stream = EventStream[PullComplete]
Parts = TierParts[DataPlane]


class DecodeServicer(decode_pb2_grpc.DecodeServicer):
    """Serves the requests that the gate lets in."""

    def __init__(self, gate: Gate, parts: Parts, devices: DevicePlane | None = None) -> None:
        self._gate = gate
        self._parts = parts
        self._receiver = Receiver(parts.engine, parts.plane, parts.geometry, devices)

    async def Generate(  # noqa: N802 - the name of the RPC
        self,
        request: decode_pb2.DecodeRequest,
        context: grpc.aio.ServicerContext[decode_pb2.DecodeRequest, decode_pb2.DecodeResponse],
    ) -> AsyncIterator[decode_pb2.DecodeResponse]:
        """One request; the stream's end, however it comes, leaves nothing behind."""
        with self._gate.enter("decode", request.model_fingerprint, request.request_id):
            parts = self._parts
            task = Task.ATTACH if request.HasField("handle") else Task.GENERATE
            wanted = engine_request(request, task, vocab=parts.vocab)
            if task is Task.ATTACH:
                check_handle(request.handle, wanted.prompt, parts.salt, parts.geometry)
            with DecodeTrace(request, task) as trace:
                async with aclosing(
                    _generate(parts, self._receiver, wanted, request.handle, seconds_left(context), trace)
                ) as responses:
                    async for response in responses:
                        yield response

    async def StopChoices(  # noqa: N802 - the name of the RPC
        self,
        request: decode_pb2.StopChoicesRequest,
        context: grpc.aio.ServicerContext[decode_pb2.StopChoicesRequest, decode_pb2.StopChoicesResponse],
    ) -> decode_pb2.StopChoicesResponse:
        """Ends choices when the step under way ends."""
        del context
        stopping = self._parts.engine.stop_choices(request.request_id, list(request.choices))
        stopped = await asyncio.wrap_future(stopping)
        return decode_pb2.StopChoicesResponse(stopped=stopped)


async def _generate(
    parts: Parts,
    receiver: Receiver,
    request: EngineRequest,
    handle: kvtransfer_pb2.KvHandle,
    seconds: float,
    trace: DecodeTrace,
) -> AsyncGenerator[decode_pb2.DecodeResponse, None]:
    events = Stream()
    moving: asyncio.Task[None] | None = None
    if request.task is Task.ATTACH:
        moving = asyncio.create_task(_ending_on_error(parts, request.request_id, keep_lease_of(handle)))
    trace.enter("decode queue")
    parts.engine.submit(request, events.put)
    try:
        async for event in events:
            trace.saw(event)
            if isinstance(event, Started) and moving is not None:
                moving.cancel()
                pull = _pull(
                    parts, receiver, request.request_id, handle, event.missing, seconds, events, trace.page_held
                )
                with trace.wait_for_kv(len(event.missing)).current():
                    moving = asyncio.create_task(_ending_on_error(parts, request.request_id, pull))
            response = _respond(event)
            if response is not None:
                yield response
    finally:
        if not events.ended:
            parts.engine.abort(request.request_id)
        if moving is not None:
            moving.cancel()
            await asyncio.gather(moving, return_exceptions=True)


async def _pull(
    parts: Parts,
    receiver: Receiver,
    request_id: str,
    handle: kvtransfer_pb2.KvHandle,
    missing: tuple[int, ...],
    seconds: float,
    events: Stream,
    page_held: Callable[[], None],
) -> None:
    complete = await receiver.receive(request_id, handle, missing, seconds, page_held)
    events.put(complete)
    parts.engine.attach(request_id, complete.first_tokens)


async def _ending_on_error(parts: Parts, request_id: str, work: Coroutine[None, None, None]) -> None:
    """Work without which the request cannot go on: its error ends the request."""
    try:
        await work
    except HalfmoonError as error:
        parts.engine.abort(request_id, error)
    except Exception as error:  # noqa: BLE001 - a request must not wait for what will not come
        _log.exception("the prompt's KV cannot be brought in", extra={"request_id": request_id})
        parts.engine.abort(request_id, InternalError(f"the KV of request {request_id} was not brought in: {error}"))


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
