"""Calls to the data plane of the same worker."""

from collections.abc import Awaitable
from typing import TypeVar

import grpc

from halfmoon.rpc import error_from_rpc

LOCAL_CALL_SECONDS = 10.0
"""Bound of a call to the data plane beyond what it may wait by its own timeout."""

Response = TypeVar("Response")


async def answer(call: Awaitable[Response]) -> Response:
    """Awaits a call. Raises the domain error that a failed one stands for."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise error_from_rpc(error) from error
