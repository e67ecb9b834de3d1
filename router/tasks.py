"""Small jobs that outlive the request that began them: bounded, counted, and awaited at the end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import grpc

from halfmoon.errors import HalfmoonError
from halfmoon.rpc import error_from_rpc

_log = logging.getLogger(__name__)


class BackgroundTasks:
    """Owns tasks until they end. Each must bound itself; one that fails is a warning in the log."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Callable[[], Awaitable[None]], what: str, **fields: object) -> None:
        """Runs `work` soon; `what` names it, `fields` go to the log."""
        task = asyncio.create_task(_warning(work, what, fields), name=what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Waits for all."""
        await asyncio.gather(*self._tasks)


async def _warning(work: Callable[[], Awaitable[None]], what: str, fields: dict[str, object]) -> None:
    try:
        await work()
    except grpc.aio.AioRpcError as error:
        _log.warning("cannot %s: %s", what, error_from_rpc(error).message, extra=fields)
    except HalfmoonError as error:
        _log.warning("cannot %s: %s", what, error.message, extra=fields)
