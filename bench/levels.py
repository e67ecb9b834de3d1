"""Levels of load: how many requests, and when each is sent."""

import random
from dataclasses import dataclass

from bench.workloads.request import Request


@dataclass(frozen=True, slots=True)
class Level:
    """One level. `concurrency` clients each send a request after another (closed loop), or `rate` requests arrive a
    second on average (open loop), or, with neither, requests arrive when the workload says."""

    requests: int
    concurrency: int | None = None
    rate: float | None = None

    @property
    def label(self) -> str:
        """A name for tables and plots."""
        if self.concurrency is not None:
            return f"concurrency {self.concurrency}"
        return f"{self.rate:g} requests/s" if self.rate is not None else "trace"


def poisson_arrivals(rate: float, count: int, seed: int) -> list[float]:
    """Seconds at which `count` requests arrive, `rate` a second on average; the same for the same seed."""
    source = random.Random(seed)
    now, arrivals = 0.0, []
    for _ in range(count):
        now += source.expovariate(rate)
        arrivals.append(now)
    return arrivals


def arrival_times(level: Level, requests: list[Request], seed: int) -> list[float]:
    """When to send each request of an open level, in seconds since it begins."""
    if level.rate is not None:
        return poisson_arrivals(level.rate, len(requests), seed)
    return [request.at for request in requests]
