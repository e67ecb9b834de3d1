"""A worker's metrics of its prefix store, by tier."""

from collections.abc import Callable
from functools import partial

from halfmoon.telemetry import Metrics, Reading
from halfmoon.v1.kvtransfer_pb2 import StatsResponse

_COUNTERS = {
    "hits": "pages asked for that the tier had",
    "misses": "pages asked for that the tier did not have",
    "stored": "pages written to the tier",
    "dropped": "pages that went to make room, or could not be kept",
    "damaged": "pages whose bytes were not what they must be",
}
_GAUGES = {
    "bytes": "bytes of pages in the tier",
    "limit_bytes": "the most bytes that the tier holds",
    "age_seconds": "time since the page that would go next was used last",
}


def watch_store_tiers(metrics: Metrics, last: Callable[[], StatsResponse]) -> None:
    """Shows what the data plane said of its store in `last()`."""
    for name, description in _COUNTERS.items():
        metrics.counted(f"halfmoon_kv_store_{name}", description, partial(_readings, last, name))
    for name, description in _GAUGES.items():
        metrics.gauge(f"halfmoon_kv_store_{name}", description, partial(_readings, last, name))


def _readings(last: Callable[[], StatsResponse], name: str) -> list[Reading]:
    return [(float(getattr(stats, name)), {"tier": tier}) for tier, stats in last().store_tiers.items()]
