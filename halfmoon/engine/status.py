"""What other threads may know of the engine: a copy made after every step."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from halfmoon.engine.core import EngineCore
from halfmoon.engine.counters import Counters


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """Load and counters as of the last step."""

    requests_running: int = 0
    requests_waiting: int = 0
    pages_total: int = 0
    pages_free: int = 0
    pages_used: int = 0
    pages_to_keep: int = 0
    prefill_tokens_queued: int = 0
    counters: Counters = field(default_factory=Counters)


class StatusBoard:
    """Thread-safe: the engine's thread writes, others read. Cache changes are handed out once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._status = EngineStatus()
        self._stored: dict[bytes, None] = {}
        self._removed: dict[bytes, None] = {}

    def observe(self, core: EngineCore) -> None:
        """Copies the core's state; called on the engine's thread."""
        scheduler = core.scheduler
        waiting = {each.job.request_id for each in scheduler.waiting}
        status = EngineStatus(
            requests_running=len(core.jobs) - len(waiting & core.jobs.keys()),
            requests_waiting=len(waiting),
            pages_total=core.pool.total,
            pages_free=core.pool.available,
            pages_used=core.pool.used,
            pages_to_keep=core.pages_to_keep,
            prefill_tokens_queued=scheduler.queued_tokens,
            counters=replace(core.counters),
        )
        stored, removed = core.pool.drain_changes()
        with self._lock:
            self._status = status
            _move(removed, self._stored, self._removed)
            _move(stored, self._removed, self._stored)

    @property
    def status(self) -> EngineStatus:
        """The last copy."""
        with self._lock:
            return self._status

    def take_cache_changes(self) -> tuple[list[bytes], list[bytes]]:
        """Content hashes (stored, removed) since the last call."""
        with self._lock:
            changes = list(self._stored), list(self._removed)
            self._stored.clear()
            self._removed.clear()
            return changes


def _move(hashes: Iterable[bytes], source: dict[bytes, None], target: dict[bytes, None]) -> None:
    for each in hashes:
        source.pop(each, None)
        target[each] = None
