"""The one place where exceptions of a servicer become statuses, calls under way are counted, and traces joined."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Any, NoReturn, TypeAlias, cast

import grpc
from google.protobuf.message import DecodeError
from grpc_status import rpc_status

from halfmoon.errors import HalfmoonError, InternalError, InvalidRequestError
from halfmoon.rpc.status import status_from_error
from halfmoon.telemetry import join_trace

_log = logging.getLogger(__name__)

_OURS = "/halfmoon."

MethodHandler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Context = grpc.aio.ServicerContext[Any, Any]
Handler = Callable[[Any, Any], Any]


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Maps HalfmoonError to its status, everything else to INTERNAL with the traceback in the log.

    Concerns the services of `halfmoon` alone; health and reflection pass unchanged. A streaming handler is closed
    before its call ends, however it ends, so its `finally` blocks have run by then. Where the call carries a trace, its
    caller's span is the current one.
    """

    def __init__(self) -> None:
        self.active = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def wait_idle(self) -> None:
        """Returns when no call of ours is under way."""
        await self._idle.wait()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable["MethodHandler | None"]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "MethodHandler | None":
        """Wraps the handler of one call."""
        found = await continuation(handler_call_details)
        method = handler_call_details.method
        if found is None or not method.startswith(_OURS):
            return found
        if found.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(
                self._unary(_parsing(found.unary_unary, found.request_deserializer), method),
                None,
                found.response_serializer,
            )
        if found.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(
                self._streaming(_parsing(found.unary_stream, found.request_deserializer), method),
                None,
                found.response_serializer,
            )
        if found.stream_stream is not None:
            return grpc.stream_stream_rpc_method_handler(
                self._streaming(found.stream_stream, method), found.request_deserializer, found.response_serializer
            )
        return found

    def _unary(self, behaviour: Handler, method: str) -> Handler:
        async def handle(request: object, context: Context) -> object:
            self._enter()
            join_trace(_metadata(context))
            try:
                return await behaviour(request, context)
            except Exception as error:  # noqa: BLE001 - the boundary: every error becomes a status
                await _fail(context, method, error)
            finally:
                self._leave()

        return handle

    def _streaming(self, behaviour: Handler, method: str) -> Handler:
        async def handle(request: object, context: Context) -> None:
            self._enter()
            join_trace(_metadata(context))
            try:
                responses = cast("AsyncIterator[object]", behaviour(request, context))
                async with aclosing(responses):  # type: ignore[type-var]
                    async for response in responses:
                        await _write(context, response)
            except Exception as error:  # noqa: BLE001 - the boundary: every error becomes a status
                await _fail(context, method, error)
            finally:
                self._leave()

        return handle

    def _enter(self) -> None:
        self.active += 1
        self._idle.clear()

    def _leave(self) -> None:
        self.active -= 1
        if self.active == 0:
            self._idle.set()


def _parsing(behaviour: Handler, parse: Callable[[bytes], Any] | None) -> Handler:
    """Takes the bytes of a request: gRPC itself would call a message that cannot be parsed UNKNOWN."""

    def handle(data: bytes, context: Context) -> Any:
        try:
            request = parse(data) if parse is not None else data
        except DecodeError as error:
            raise InvalidRequestError("the request is no message of the kind that this method takes") from error
        return behaviour(request, context)

    return handle


def _metadata(context: Context) -> Iterable[tuple[str, str | bytes]]:
    return cast("Iterable[tuple[str, str | bytes]]", context.invocation_metadata() or ())


async def _write(context: Context, response: object) -> None:
    """Raises asyncio.CancelledError when the caller is gone, as a wait elsewhere in the handler would."""
    try:
        await context.write(response)
    except Exception as error:
        if context.done():
            raise asyncio.CancelledError from error
        raise


async def _fail(context: Context, method: str, error: Exception) -> NoReturn:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if not isinstance(error, HalfmoonError):
        _log.error("call failed", extra={"method": method}, exc_info=error)
        error = InternalError(f"{type(error).__name__} in {method}; the log of the program tells more")
    status = rpc_status.to_status(status_from_error(error))
    await context.abort(status.code, status.details, status.trailing_metadata)
    raise AssertionError("abort returned")
