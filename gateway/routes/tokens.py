"""`/tokenize` and `/detokenize`."""

from fastapi import Request, Response

from gateway.errors import json_response, renamed_params
from gateway.parsing.body import decode, read_body
from gateway.parsing.chat import chat_prompt
from gateway.parsing.numbers import token_ids
from gateway.presence import while_connected
from gateway.schema.requests import DetokenizeBody, TokenizeBody
from gateway.schema.service import DetokenizeResult, TokenizeResult
from gateway.services import Services
from halfmoon.errors import InvalidRequestError
from halfmoon.v1.router_pb2 import DetokenizeRequest, TokenizeRequest


class TokenRoutes:
    """Between text and token ids."""

    def __init__(self, services: Services) -> None:
        self._client = services.client
        self._config = services.config

    async def tokenize(self, request: Request) -> Response:
        """`POST /tokenize`: the ids of a prompt or of messages."""
        message = _tokenize_request(decode(await self._body(request), TokenizeBody))
        answer = await while_connected(request.receive, self._client.tokenize(message, self._config.request_seconds))
        return json_response(TokenizeResult(len(answer.token_ids), answer.max_model_len, list(answer.token_ids)))

    async def detokenize(self, request: Request) -> Response:
        """`POST /detokenize`: the text of ids."""
        body = decode(await self._body(request), DetokenizeBody)
        if body.tokens is None:
            raise InvalidRequestError("tokens is missing", param="tokens")
        message = DetokenizeRequest(model=body.model or "", token_ids=token_ids("tokens", body.tokens))
        work = self._client.detokenize(message, self._config.request_seconds)
        with renamed_params({"token_ids": "tokens"}):
            answer = await while_connected(request.receive, work)
        return json_response(DetokenizeResult(answer.text))

    async def _body(self, request: Request) -> bytes:
        return await read_body(request, limit=self._config.max_body_bytes, seconds=self._config.body_seconds)


def _tokenize_request(body: TokenizeBody) -> TokenizeRequest:
    if (body.prompt is None) == (body.messages is None):
        raise InvalidRequestError("give either prompt or messages", param="prompt")
    message = TokenizeRequest(model=body.model or "", no_special_tokens=body.add_special_tokens is False)
    if body.prompt is not None:
        message.text = body.prompt
    else:
        chat = chat_prompt(body.messages, add_generation_prompt=body.add_generation_prompt is not False)
        message.chat.CopyFrom(chat)
    return message
