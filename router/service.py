"""The Router service, for clients."""

# ruff: noqa: N802 - methods are named by the protos

import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc

from halfmoon.errors import InvalidRequestError
from halfmoon.text import TextModel
from halfmoon.v1 import router_pb2 as pb
from halfmoon.v1 import router_pb2_grpc
from router.dispatcher import Dispatcher
from router.fleet import Fleet
from router.worker import Role

Context = grpc.aio.ServicerContext[Any, Any]


class RouterService(router_pb2_grpc.RouterServicer):
    """Thin: everything is done by the dispatcher."""

    def __init__(self, dispatcher: Dispatcher, text: TextModel, fleet: Fleet, model: str) -> None:
        self._dispatcher = dispatcher
        self._text = text
        self._fleet = fleet
        self._model = model
        self._created = int(time.time())

    async def Generate(self, request: pb.GenerateRequest, context: Context) -> AsyncIterator[pb.GenerateResponse]:
        """See router.proto."""
        answer = self._dispatcher.generate(request, seconds_left=context.time_remaining())
        async with aclosing(answer) as responses:
            async for response in responses:
                yield response

    async def Tokenize(self, request: pb.TokenizeRequest, context: Context) -> pb.TokenizeResponse:
        """See router.proto."""
        self._dispatcher.check_model(request.model)
        limits = (self._dispatcher.context, self._dispatcher.deadline(context.time_remaining()))
        return pb.TokenizeResponse(token_ids=await self._token_ids(request, *limits), max_model_len=limits[0])

    async def Detokenize(self, request: pb.DetokenizeRequest, context: Context) -> pb.DetokenizeResponse:
        """See router.proto."""
        self._dispatcher.check_model(request.model)
        deadline = self._dispatcher.deadline(context.time_remaining())
        return pb.DetokenizeResponse(text=await self._dispatcher.preparation.decode(request.token_ids, deadline))

    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsResponse:
        """See router.proto."""
        ready = not self._dispatcher.draining and any(
            worker.role is not Role.PREFILL for worker in self._fleet.available
        )
        model = pb.ModelInfo(
            name=self._model,
            max_model_len=self._dispatcher.context,
            created=self._created,
            ready=ready,
            fingerprint=self._text.fingerprint,
            vocab_size=self._text.vocab_size,
        )
        return pb.ListModelsResponse(models=[model])

    async def _token_ids(self, request: pb.TokenizeRequest, context: int, deadline: float) -> list[int]:
        preparation = self._dispatcher.preparation
        kind = request.WhichOneof("input")
        if kind == "text":
            return await preparation.encode_text(
                request.text, add_special=not request.no_special_tokens, context=context, deadline=deadline
            )
        if kind == "chat":
            return await preparation.encode_chat(request.chat, context=context, deadline=deadline)
        raise InvalidRequestError("there is nothing to tokenise: give a prompt or messages", param="prompt")
