"""Generation as an HTTP response: a stream of chunks, or their join; cancelled when the client hangs up."""

from typing import Generic

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.answers.base import Answer, ChunkT
from gateway.errors import ClientGoneError, domain_error, error_body, json_response, renamed_params
from gateway.fanout import Fanout
from gateway.pace import Pace
from gateway.presence import while_connected
from gateway.record import RequestRecord, record_of
from gateway.schema.common import Usage
from gateway.services import Services
from gateway.sse import EventStream
from halfmoon.v1.router_pb2 import GenerateResponse


class GenerationResponse(Response, Generic[ChunkT]):
    """Runs the generation while it is being sent, so that one place owns it from first to last.

    Errors before the router's first event are raised and get their own HTTP status; later ones end the stream.
    """

    def __init__(self, services: Services, answer: Answer[ChunkT]) -> None:
        super().__init__()
        self._services = services
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        record = record_of(scope)
        try:
            response = await while_connected(receive, self._generate(record, send))
        except ClientGoneError as error:
            record.failed(error)
            return
        if response is not None:
            await response(scope, receive, send)

    async def _generate(self, record: RequestRecord, send: Send) -> Response | None:
        """Sends the stream, or returns the whole answer."""
        call = self._answer.call
        config = self._services.config
        fanout = Fanout(self._services.client, call.requests, seconds=call.timeout, at_once=config.prompts_at_once)
        pace = Pace(self._services.metrics, record.started)
        run = _Run(self._answer, record, pace)
        with pace, self._services.running.generating(fanout), renamed_params(self._answer.param_names):
            async with fanout:
                if not call.stream:
                    return await run.whole(fanout)
                await run.stream(fanout, EventStream(send, config.write_seconds))
        return None


class _Run(Generic[ChunkT]):
    """One pass over the events."""

    def __init__(self, answer: Answer[ChunkT], record: RequestRecord, pace: Pace) -> None:
        self._answer = answer
        self._record = record
        self._pace = pace

    async def whole(self, events: Fanout) -> Response:
        chunks: list[ChunkT] = []
        async for prompt, event in events:
            chunks += self._feed(prompt, event)
        usage = self._finish()
        return json_response(self._answer.join(chunks, usage))

    async def stream(self, events: Fanout, out: EventStream) -> None:
        try:
            async for prompt, event in events:
                chunks = self._feed(prompt, event)
                if not out.begun:
                    await out.begin()
                await out.write(chunks)
            usage = self._finish()
            tail = [self._answer.usage_chunk(usage)] if self._answer.call.include_usage else []
        except ClientGoneError:
            raise
        except Exception as problem:
            if not out.begun:
                raise
            error = domain_error(problem, self._record.request_id)
            self._record.failed(error)
            await out.end([error_body(error)])
        else:
            await out.end(tail)

    def _feed(self, prompt: int, event: GenerateResponse) -> list[ChunkT]:
        self._pace.saw(prompt, event)
        return self._answer.feed(prompt, event)

    def _finish(self) -> Usage:
        usage = self._answer.finish()
        self._record.prompt_tokens = usage.prompt_tokens
        self._record.completion_tokens = usage.completion_tokens
        return usage
