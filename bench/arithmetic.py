"""Percentiles, summaries and shares of whole tokens: plain functions of numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Distribution:
    """What a set of measured values looks like, in their own unit."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of the ascending values lie, linear between neighbours.

    Raises ValueError where there are no values.
    """
    if not ordered:
        raise ValueError("no values have no percentile")
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def describe(values: Sequence[float]) -> Distribution | None:
    """Mean and percentiles; None where there are no values."""
    if not values:
        return None
    ordered = sorted(values)
    p50, p90, p99 = (percentile(ordered, share) for share in (0.5, 0.9, 0.99))
    return Distribution(len(ordered), math.fsum(ordered) / len(ordered), p50, p90, p99)


def apportion(total: int, weights: Sequence[int]) -> list[int]:
    """Whole shares that sum to `total`, as near to the weights' proportions as whole numbers allow.

    Weights that are all zero count as equal.
    """
    if not weights:
        return []
    scale = sum(weights)
    exact = [total * weight / scale if scale else total / len(weights) for weight in weights]
    shares = [math.floor(value) for value in exact]
    by_remainder = sorted(range(len(weights)), key=lambda index: shares[index] - exact[index])
    for index in by_remainder[: total - sum(shares)]:
        shares[index] += 1
    return shares
