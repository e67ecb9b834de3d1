"""Histograms for the path of every token: a tenth of what the SDK's instrument costs, in the same registry."""

import threading
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

Labels = tuple[tuple[str, str], ...]


class Series:
    """The values under one set of labels; its owner keeps it, and pays for finding it once."""

    def __init__(self, bounds: Sequence[float], lock: threading.Lock) -> None:
        self._bounds = bounds
        self._lock = lock
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def record(self, value: float, count: int = 1) -> None:
        """Counts `count` values that are all `value`."""
        with self._lock:
            self._counts[bisect_left(self._bounds, value)] += count
            self._sum += value * count

    def read(self) -> tuple[list[int], float]:
        """Values up to each bound and in all, and their sum."""
        with self._lock:
            return list(accumulate(self._counts)), self._sum


class Histogram(Collector):
    """Counts values in buckets by their upper bounds. Thread-safe."""

    def __init__(self, name: str, description: str, bounds: Sequence[float]) -> None:
        self._name = name
        self._description = description
        self._bounds = tuple(map(float, bounds))
        self._lock = threading.Lock()
        self._series: dict[Labels, Series] = {}

    def record(self, value: float, count: int = 1, **labels: str) -> None:
        """Counts a value, in the histogram's unit, `count` times."""
        self.series(**labels).record(value, count)

    def series(self, **labels: str) -> Series:
        """Where the values under these labels are counted; it shows from now on."""
        key = tuple(labels.items())
        found = self._series.get(key)
        if found is None:
            with self._lock:
                found = self._series.setdefault(key, Series(self._bounds, threading.Lock()))
        return found

    def collect(self) -> Iterable[HistogramMetricFamily]:
        """For the registry."""
        with self._lock:
            series = dict(self._series)
        if not series:
            return
        label_names = [name for name, _ in next(iter(series))]
        family = HistogramMetricFamily(self._name, self._description, labels=label_names)
        limits = [*map(repr, self._bounds), "+Inf"]
        for labels, values in series.items():
            counts, total = values.read()
            buckets = list(zip(limits, counts, strict=True))
            family.add_metric([value for _, value in labels], buckets, total)
        yield family
