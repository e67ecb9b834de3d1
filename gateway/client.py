"""The routers as the gateway sees them."""

import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

import grpc

from halfmoon.config import RETRY_AFTER
from halfmoon.errors import CancelledError, HalfmoonError, UnavailableError
from halfmoon.rpc import error_from_rpc, open_channel
from halfmoon.telemetry import call_span
from halfmoon.telemetry import conventions as names
from halfmoon.v1 import router_pb2, router_pb2_grpc

if TYPE_CHECKING:
    Stub = router_pb2_grpc.RouterAsyncStub

T = TypeVar("T")


class RouterClient:
    """Calls the routers in turn; one that is unavailable before it has answered anything is passed over.

    Owns its channels: `close` it. Every method raises the HalfmoonError that the router reports. `model` is the name of
    the served model, empty until `list_models` has told it.
    """

    def __init__(self, addresses: Sequence[str], *, control_seconds: float) -> None:
        self._channels = [open_channel(address) for address in addresses]
        self._stubs: list[Stub] = [router_pb2_grpc.RouterStub(channel) for channel in self._channels]
        self._turn = itertools.count()
        self._control_seconds = control_seconds
        self.streams_open = 0
        self.model = ""

    async def generate(
        self, request: router_pb2.GenerateRequest, seconds: float
    ) -> AsyncGenerator[router_pb2.GenerateResponse]:
        """The events of one generation, at most `seconds` long. Closing the iterator cancels the call."""
        stubs = self._in_turn()
        while True:
            stub = stubs.pop(0)
            answered = False
            try:
                async with aclosing(self._stream(stub, request, seconds)) as events:
                    async for event in events:
                        answered = True
                        yield event
            except UnavailableError:
                if answered or not stubs:
                    raise
            else:
                return

    async def _stream(
        self, stub: "Stub", request: router_pb2.GenerateRequest, seconds: float
    ) -> AsyncGenerator[router_pb2.GenerateResponse]:
        with call_span("halfmoon.v1.Router/Generate", {names.REQUEST_ID: request.request_id}) as span:
            call = stub.Generate(request, timeout=seconds, metadata=span.metadata)
            self.streams_open += 1
            try:
                async for event in call:
                    yield event
            except grpc.aio.AioRpcError as error:
                raise _domain_error(error) from error
            finally:
                call.cancel()
                self.streams_open -= 1

    async def tokenize(self, request: router_pb2.TokenizeRequest, seconds: float) -> router_pb2.TokenizeResponse:
        """Text or chat to ids, within `seconds`."""
        return await self._unary(lambda stub: stub.Tokenize(request, timeout=seconds))

    async def detokenize(self, request: router_pb2.DetokenizeRequest, seconds: float) -> router_pb2.DetokenizeResponse:
        """Ids to text, within `seconds`."""
        return await self._unary(lambda stub: stub.Detokenize(request, timeout=seconds))

    async def list_models(self) -> router_pb2.ListModelsResponse:
        """The models served."""
        request = router_pb2.ListModelsRequest()
        listed = await self._unary(lambda stub: stub.ListModels(request, timeout=self._control_seconds))
        self.model = listed.models[0].name if listed.models else self.model
        return listed

    async def close(self) -> None:
        """Ends all calls and closes the channels."""
        for channel in self._channels:
            await channel.close()

    async def _unary(self, method: "Callable[[Stub], Awaitable[T]]") -> T:
        stubs = self._in_turn()
        while True:
            stub = stubs.pop(0)
            try:
                return await method(stub)
            except grpc.aio.AioRpcError as rpc_error:
                error = _domain_error(rpc_error)
                if not stubs or not isinstance(error, UnavailableError):
                    raise error from rpc_error

    def _in_turn(self) -> "list[Stub]":
        first = next(self._turn) % len(self._stubs)
        return self._stubs[first:] + self._stubs[:first]


def _domain_error(rpc_error: grpc.aio.AioRpcError) -> HalfmoonError:
    error = error_from_rpc(rpc_error)
    if isinstance(error, CancelledError):
        return UnavailableError("the router ended the request before it was complete", retry_after=RETRY_AFTER)
    return error
