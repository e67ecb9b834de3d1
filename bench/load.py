"""Carries out one level of load."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from bench.dialect import Dialect
from bench.levels import Level, arrival_times
from bench.samples import Sample
from bench.server import Server
from bench.summary import Objectives, Summary, summarize
from bench.workloads import Request

OnSample = Callable[[Sample], None]
"""Called once for every request that has ended."""

Send = Callable[[Request, float], Coroutine[None, None, None]]
"""Sends a request that was planned for a time."""


@dataclass(frozen=True, slots=True)
class Load:
    """Sends requests to one server in one dialect."""

    server: Server
    dialect: Dialect
    objectives: Objectives
    seed: int

    async def run(self, level: Level, requests: list[Request], on_sample: OnSample) -> Summary:
        """Sends all requests as the level says and waits for all answers."""
        cpu, start = time.process_time(), time.perf_counter()
        samples: list[Sample] = []

        def clock() -> float:
            return time.perf_counter() - start

        async def send(request: Request, planned: float) -> None:
            sample = await self.server.complete(self.dialect, request, planned=planned, clock=clock)
            samples.append(sample)
            on_sample(sample)

        if level.concurrency is not None:
            await _closed(requests, level.concurrency, send, clock)
        else:
            await _open(requests, arrival_times(level, requests, self.seed), send, clock)
        return summarize(
            level,
            samples,
            duration=clock(),
            cpu_seconds=time.process_time() - cpu,
            objectives=self.objectives,
        )


async def _closed(requests: list[Request], concurrency: int, send: Send, clock: Callable[[], float]) -> None:
    """Each of `concurrency` clients sends its next request when its last one has been answered."""
    waiting = iter(requests)

    async def client() -> None:
        for request in waiting:
            await send(request, clock())

    async with asyncio.TaskGroup() as clients:
        for _ in range(min(concurrency, len(requests))):
            clients.create_task(client())


async def _open(requests: list[Request], arrivals: list[float], send: Send, clock: Callable[[], float]) -> None:
    """Every request is sent at its time, whatever became of those before it."""
    async with asyncio.TaskGroup() as clients:
        for request, arrival in zip(requests, arrivals, strict=True):
            if (wait := arrival - clock()) > 0:
                await asyncio.sleep(wait)
            clients.create_task(send(request, arrival))
