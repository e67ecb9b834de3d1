"""Whether a worker can go on: its engine turns, and its data plane lives."""

import asyncio
import logging

from halfmoon.config import DEADLINES
from halfmoon.engine.engine import Engine

_log = logging.getLogger(__name__)

HANG_SECONDS = 60.0
"""No step takes so long: an engine that has not turned meanwhile will not turn again."""


async def until_stopped(
    stopping: asyncio.Event,
    engine: Engine,
    plane_died: "asyncio.Future[int]",
    *,
    interval: float = DEADLINES.heartbeat / 4,
    hang_seconds: float = HANG_SECONDS,
) -> bool:
    """Waits for the signal; False when the engine failed or hangs, or the data plane died.

    Time counts while this loop turns: a process that was suspended as a whole is not taken for one that hangs.
    """
    turn, unturned = engine.last_turn, 0.0
    while not stopping.is_set():
        if engine.failure is not None:
            _log.error("the engine failed", extra={"error": engine.failure})
            return False
        if plane_died.done():
            _log.error("the data plane died")
            return False
        if unturned > hang_seconds:
            _log.error("the engine hangs", extra={"seconds": unturned})
            return False
        try:
            await asyncio.wait_for(stopping.wait(), interval)
        except TimeoutError:
            unturned = unturned + interval if engine.last_turn == turn else 0.0
            turn = engine.last_turn
    return True
