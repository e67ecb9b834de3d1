"""A program on `run_until_signal` that takes a while to drain. Run as `python -m tests.cli.fake_loop [SECONDS]`."""

import asyncio
import sys

from cli.loop import run_until_signal


async def serve(stopping: asyncio.Event) -> None:
    """Serves until `stopping`, then drains for the given number of seconds."""
    print("serving", flush=True)
    await stopping.wait()
    print("draining", flush=True)
    await asyncio.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 0)
    print("drained", flush=True)


if __name__ == "__main__":
    sys.exit(run_until_signal("fake", serve))
