"""A worker's metrics: gauges over what the engine, the gate and the data plane hold."""

import asyncio
import logging

from halfmoon.engine.engine import Engine
from halfmoon.errors import HalfmoonError
from halfmoon.telemetry import Metrics, Reading
from halfmoon.tier import Gate
from halfmoon.v1 import kvtransfer_pb2
from kvtransfer import DataPlane

_log = logging.getLogger(__name__)

_COUNTERS = {
    "prompt_tokens_computed": "prompt tokens computed here",
    "prompt_tokens_cached": "prompt tokens found in the prefix cache",
    "tokens_generated": "tokens written",
    "prefill_steps": "prefill steps",
    "decode_steps": "decode steps",
    "blocks_received": "KV blocks written into device pages",
    "preemptions": "sequences that lost their pages to older ones",
}
_LOAD = {
    "requests_running": "requests being computed",
    "requests_waiting": "requests that hold no pages yet",
    "pages_total": "pages of the device pool",
    "pages_free": "pages that can be allocated, cached ones included",
    "pages_used": "pages held by sequences",
    "prefill_tokens_queued": "prompt tokens not computed yet",
}


def watch_engine(metrics: Metrics, engine: Engine, gate: Gate) -> None:
    """Gauges of the engine as of its last step."""
    for name, description in _LOAD.items():
        metrics.gauge(f"halfmoon_worker_{name}", description, lambda name=name: getattr(engine.board.status, name))
    for name, description in _COUNTERS.items():
        metrics.gauge(
            f"halfmoon_worker_{name}_total", description, lambda name=name: getattr(engine.board.status.counters, name)
        )
    metrics.gauge("halfmoon_worker_streams_open", "gRPC streams of requests", lambda: gate.inside)
