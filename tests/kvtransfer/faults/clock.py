"""How long the event loop of a test stood still because its machine was busy with something else."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_TICK_SECONDS = 0.02


class LoopClock:
    """`lost` are the seconds by which ticks came too late, all together."""

    def __init__(self) -> None:
        self.lost = 0.0

    async def tick(self) -> None:
        """Runs until it is cancelled."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(_TICK_SECONDS)
            self.lost += time.monotonic() - began - _TICK_SECONDS


@asynccontextmanager
async def loop_clock() -> AsyncIterator[LoopClock]:
    """One that ticks inside."""
    clock = LoopClock()
    ticking = asyncio.create_task(clock.tick())
    try:
        yield clock
    finally:
        ticking.cancel()
        await asyncio.wait([ticking])
