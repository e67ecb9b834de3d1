"""Calls to the data plane of the same worker."""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import grpc

from halfmoon.errors import UnavailableError
from halfmoon.rpc import error_from_rpc

LOCAL_CALL_SECONDS = 10.0
"""Bound of a call to the data plane beyond what it may wait by its own timeout."""

Response = TypeVar("Response")


@contextmanager
def domain_errors() -> Iterator[None]:
    """Raises the domain error that a failed call inside stands for.

    A channel that is closed under a call cancels it, which must not look as if its caller had been cancelled: a task
    that ends so is missed by nobody.
    """
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise error_from_rpc(error) from error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise UnavailableError("the data plane is closed") from None


async def answer(call: Awaitable[Response]) -> Response:
    """Awaits a call; errors as of `domain_errors`."""
    with domain_errors():
        return await call
