"""A worker's metrics: gauges over what the engine, the gate and the data plane hold."""

import asyncio
import logging
from functools import partial

from cli.store_metrics import watch_store_tiers
from halfmoon.engine.engine import Engine
from halfmoon.engine.status import StatusBoard
from halfmoon.errors import HalfmoonError
from halfmoon.telemetry import Metrics, Reading
from halfmoon.tier import Gate
from halfmoon.v1 import kvtransfer_pb2
from kvtransfer import DataPlane
from kvtransfer.paging import PageStore

_log = logging.getLogger(__name__)

_COUNTERS = {
    "prompt_tokens_computed": "prompt tokens computed here",
    "prompt_tokens_cached": "prompt tokens found in the prefix cache or a prefix store",
    "prompt_tokens_restored": "prompt tokens found in a prefix store",
    "tokens_generated": "tokens written",
    "prefill_steps": "prefill steps",
    "decode_steps": "decode steps",
    "blocks_received": "KV blocks written into device pages",
    "preemptions": "sequences that lost their pages to older ones",
    "pages_kept": "pages copied to the prefix store",
}
_LOAD = {
    "requests_running": "requests being computed",
    "requests_waiting": "requests that hold no pages yet",
    "pages_total": "pages of the device pool",
    "pages_free": "pages that can be allocated, cached ones included",
    "pages_used": "pages held by sequences",
    "pages_to_keep": "pages that are still to be offered to the prefix store",
    "prefill_tokens_queued": "prompt tokens not computed yet",
}


_PLANE = {
    "host_blocks_total": "host blocks of the data plane",
    "host_blocks_used": "host blocks that cannot be had",
    "handles_open": "KV handles neither released nor withdrawn nor expired",
    "leases_active": "sealed handles whose lease runs",
    "transfers_active": "KV transfers under way",
    "store_leases": "leases of stored pages that the engine holds",
}
_POLL_SECONDS = 0.5


def watch_engine(metrics: Metrics, engine: Engine, gate: Gate) -> None:
    """Gauges of the engine as of its last step."""
    board = engine.board
    for name, description in _LOAD.items():
        metrics.gauge(f"halfmoon_worker_{name}", description, partial(_load, board, name))
    for name, description in _COUNTERS.items():
        metrics.counted(f"halfmoon_worker_{name}", description, partial(_count, board, name))
    metrics.gauge("halfmoon_worker_streams_open", "gRPC streams of requests", lambda: gate.inside)


def watch_store(metrics: Metrics, store: PageStore) -> None:
    """Gauges of the way to and from the prefix store."""
    metrics.gauge("halfmoon_worker_searches", "prompts that wait for pages of a prefix store", lambda: store.searches)


class PlaneWatch:
    """Asks the data plane for its gauges every half second until closed; between, the last answer is shown."""

    def __init__(self, metrics: Metrics, plane: DataPlane) -> None:
        self._plane = plane
        self._last = kvtransfer_pb2.StatsResponse()
        for name, description in _PLANE.items():
            metrics.gauge(f"halfmoon_kv_{name}", description, partial(self._gauge, name))
        metrics.counted("halfmoon_kv_bytes_read", "KV bytes pulled from peers", self._bytes)
        metrics.counted("halfmoon_kv_transfers_ended", "KV transfers by final state", self._ended)
        metrics.counted("halfmoon_kv_transport_choices", "transports taken, by reason", self._choices)
        watch_store_tiers(metrics, lambda: self._last)
        self._task = asyncio.create_task(self._poll())

    async def close(self) -> None:
        """Stops asking."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def refresh(self) -> None:
        """Asks now."""
        self._last = await self._plane.stats()

    async def _poll(self) -> None:
        while True:
            try:
                await self.refresh()
            except HalfmoonError as error:
                _log.warning("the data plane does not answer", extra={"error": error})
            await asyncio.sleep(_POLL_SECONDS)

    def _gauge(self, name: str) -> float:
        return float(getattr(self._last, name))

    def _bytes(self) -> list[Reading]:
        return [(float(count), {"transport": name}) for name, count in self._last.bytes_read.items()]

    def _choices(self) -> list[Reading]:
        return [
            (float(each.count), {"transport": each.transport, "reason": each.reason})
            for each in self._last.transport_choices
        ]

    def _ended(self) -> list[Reading]:
        return [(float(count), {"state": state}) for state, count in self._last.transfers_ended.items()]


def _load(board: StatusBoard, name: str) -> float:
    return float(getattr(board.status, name))


def _count(board: StatusBoard, name: str) -> float:
    return float(getattr(board.status.counters, name))
