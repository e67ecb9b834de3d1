"""Clean-up calls that must be made although their caller has gone."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import TypeVar

from halfmoon.errors import UnavailableError

Result = TypeVar("Result")

_log = logging.getLogger(__name__)


class Settling:
    """Runs clean-up in tasks of its own, each bounded by its own deadline."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()
        self._closed = False

    async def run(self, work: Coroutine[object, object, Result]) -> Result:
        """The result of `work`, which goes on when the caller is cancelled. Raises UnavailableError once closed."""
        if self._closed:
            work.close()
            raise UnavailableError("the data plane is closed")
        task = asyncio.create_task(work)
        self._keep(task)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_log_failure)
            raise

    def start(self, work: Coroutine[object, object, object]) -> None:
        """Runs `work` in the background; an error of it is logged. Drops it once closed."""
        if self._closed:
            work.close()
            return
        task = asyncio.create_task(work)
        self._keep(task)
        task.add_done_callback(_log_failure)

    async def close(self) -> None:
        """Takes no more; returns when all work has ended."""
        self._closed = True
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def _keep(self, task: "asyncio.Task[Result]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _log_failure(task: "asyncio.Task[Result]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("clean-up at the data plane failed", extra={"error": str(error)})
