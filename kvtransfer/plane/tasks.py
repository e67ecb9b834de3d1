"""Small additions to asyncio's tasks."""

import asyncio
import traceback
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import TypeVar

from kvtransfer.transports.base import StopSignal

Result = TypeVar("Result")


@asynccontextmanager
async def first_error_group() -> AsyncIterator[asyncio.TaskGroup]:
    """An `asyncio.TaskGroup` that raises the first error as itself instead of a group of all."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        raise _first(errors) from None


async def wait_done(waited: "asyncio.Future[Result]") -> None:
    """Returns when a task or future is done, whatever its result; being cancelled meanwhile is put off until then."""
    cancelled = False
    while not waited.done():
        try:
            await asyncio.wait([waited])
        except asyncio.CancelledError:
            cancelled = True
    if not waited.cancelled():
        waited.exception()
    if cancelled:
        raise asyncio.CancelledError


async def run_stoppable(job: "Future[Result]", stop: StopSignal) -> Result:
    """The result of a thread's work. Cancelled, it stops the work and returns only when the thread has let go."""
    waited = asyncio.wrap_future(job)
    try:
        return await asyncio.shield(waited)
    except asyncio.CancelledError:
        job.cancel()
        stop.set()
        await wait_done(waited)
        raise


def let_go(error: BaseException) -> None:
    """Clears the frames that an error came through, and those of its causes; its traceback can still be logged.

    They would keep what they worked with, such as a peer that is closed, until the garbage collector comes by.
    """
    causes: list[BaseException | None] = [error]
    seen: set[int] = set()
    while causes:
        cause = causes.pop()
        if cause is not None and id(cause) not in seen:
            seen.add(id(cause))
            traceback.clear_frames(cause.__traceback__)
            causes += [cause.__cause__, cause.__context__]


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
