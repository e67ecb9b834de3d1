"""`/v1/completions` and `/v1/chat/completions`."""

from fastapi import Request, Response

from gateway.answers.chat import ChatAnswer
from gateway.answers.completions import CompletionAnswer
from gateway.delivery import GenerationResponse
from gateway.parsing.body import read_body
from gateway.parsing.chat import parse_chat
from gateway.parsing.completions import parse_completion
from gateway.record import record_of
from gateway.services import Services


class GenerationRoutes:
    """Text from a prompt, and the next message of a chat."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def completions(self, request: Request) -> Response:
        """`POST /v1/completions`."""
        raw = await self._body(request)
        call = parse_completion(raw, record_of(request.scope).request_id, longest=self._services.config.request_seconds)
        return GenerationResponse(self._services, CompletionAnswer(call))

    async def chat(self, request: Request) -> Response:
        """`POST /v1/chat/completions`."""
        raw = await self._body(request)
        call = parse_chat(raw, record_of(request.scope).request_id, longest=self._services.config.request_seconds)
        return GenerationResponse(self._services, ChatAnswer(call))

    async def _body(self, request: Request) -> bytes:
        config = self._services.config
        return await read_body(request, limit=config.max_body_bytes, seconds=config.body_seconds)
