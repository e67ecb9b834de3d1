"""Runs one program on uvloop until a signal ends it."""

import asyncio
import signal
from collections.abc import Awaitable, Callable

import uvloop

from halfmoon.telemetry import TelemetrySettings, telemetry

EXIT_KILLED = 130

_DEFAULTS = TelemetrySettings()

RunUntil = Callable[[asyncio.Event], Awaitable[None]]
"""A program: serves until the event is set, then drains and returns."""


def run_until_signal(
    service: str, run: RunUntil, settings: TelemetrySettings = _DEFAULTS, *, name: str | None = None
) -> int:
    """Sets the program's event at SIGTERM or SIGINT; a second SIGINT ends it without draining.

    `service` and `name` are those of `halfmoon.telemetry.telemetry`. Returns the exit status: 0, or 130 when it was not
    allowed to drain. What the program raises passes through.
    """
    with telemetry(service, settings, name=name):
        try:
            uvloop.run(_run(run))
        except asyncio.CancelledError:
            return EXIT_KILLED
    return 0


async def _run(run: RunUntil) -> None:
    stopping = asyncio.Event()
    loop, program = asyncio.get_running_loop(), asyncio.ensure_future(run(stopping))

    def interrupt() -> None:
        if stopping.is_set():
            program.cancel()
        stopping.set()

    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    loop.add_signal_handler(signal.SIGINT, interrupt)
    await program
