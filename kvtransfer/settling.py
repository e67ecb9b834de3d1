"""Clean-up calls that must be made although their caller has gone."""

import asyncio
import logging
from collections.abc import Coroutine

from halfmoon.errors import HalfmoonError

_log = logging.getLogger(__name__)


class Settling:
    """Runs clean-up in tasks of its own, each bounded by its own deadline."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def start(self, work: Coroutine[object, object, object]) -> None:
        """Runs `work` in the background; a domain error of it is logged. Drops it once closed."""
        if self._closed:
            work.close()
            return
        task = asyncio.create_task(_run(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Takes no more; returns when all work has ended."""
        self._closed = True
        while self._tasks:
            await asyncio.wait(set(self._tasks))


async def _run(work: Coroutine[object, object, object]) -> None:
    try:
        await work
    except HalfmoonError as error:
        _log.warning("clean-up at the data plane failed", extra={"error": error.message})
