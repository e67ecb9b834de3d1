"""From times to figures: plain functions of numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

GB = 1e9


@dataclass(frozen=True, slots=True)
class Figures:
    """One contestant in one case. `rates` are GB/s, one for each round; times are in seconds of a batch."""

    rates: tuple[float, ...]
    p50: float
    p99: float
    cpu_per_gb: float

    @property
    def rate(self) -> float:
        """GB/s, the median of the rounds."""
        return median(self.rates)


def figures(batch_bytes: int, rounds: Sequence[Sequence[float]], cpu_seconds: float) -> Figures:
    """Of the seconds of each batch of each round, and the processor time of all. Raises ValueError for no rounds."""
    if not rounds or not all(rounds):
        raise ValueError("no batches have no figures")
    every = sorted(seconds for batches in rounds for seconds in batches)
    rates = tuple(batch_bytes / GB / median(batches) for batches in rounds)
    moved = batch_bytes * len(every) / GB
    return Figures(rates, percentile(every, 0.5), percentile(every, 0.99), cpu_seconds / moved)


def ratio(ours: Figures, theirs: Figures) -> float:
    """How many times as fast: the median over the rounds, in each of which both had the same machine."""
    return median(mine / other for mine, other in zip(ours.rates, theirs.rates, strict=True))


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest of the ascending values that at least `share` (0 to 1) of them do not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
