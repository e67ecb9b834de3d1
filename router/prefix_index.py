"""Which worker caches which pages: exact, from what the workers report."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Cached:
    hashes: set[bytes] = field(default_factory=set)
    sequence: int | None = None


class PrefixIndex:
    """Content hash of a page → workers that hold it. Not thread-safe."""

    def __init__(self) -> None:
        self._holders: dict[bytes, set[str]] = {}
        self._workers: dict[str, _Cached] = {}

    def __len__(self) -> int:
        """Distinct pages that some worker holds."""
        return len(self._holders)

    def cached_pages(self, worker_id: str) -> int:
        """Pages that a worker holds."""
        cached = self._workers.get(worker_id)
        return len(cached.hashes) if cached else 0

    def apply(
        self, worker_id: str, sequence: int, *, snapshot: bool, stored: Iterable[bytes], removed: Iterable[bytes] = ()
    ) -> bool:
        """Takes a delta: `removed` first, then `stored`. A snapshot replaces all.

        False when deltas before this one are missing: the worker's pages are forgotten until it sends a snapshot.
        """
        cached = self._workers.get(worker_id)
        if snapshot:
            self.drop(worker_id)
            cached = self._workers[worker_id] = _Cached()
        elif cached is None or cached.sequence is None or sequence != cached.sequence + 1:
            self.drop(worker_id)
            return False
        cached.sequence = sequence
        for content_hash in removed:
            self._remove(worker_id, cached, content_hash)
        for content_hash in stored:
            cached.hashes.add(content_hash)
            self._holders.setdefault(content_hash, set()).add(worker_id)
        return True

    def drop(self, worker_id: str) -> None:
        """Forgets a worker."""
        cached = self._workers.pop(worker_id, None)
        if cached is not None:
            for content_hash in list(cached.hashes):
                self._remove(worker_id, cached, content_hash)

    def longest_prefixes(self, chain: Sequence[bytes]) -> dict[str, int]:
        """Pages from the front of `chain` that each worker holds without a gap; workers that hold none are left out."""
        lengths: dict[str, int] = {}
        holding: set[str] | None = None
        for content_hash in chain:
            holders = self._holders.get(content_hash, set())
            holding = set(holders) if holding is None else holding & holders
            if not holding:
                break
            for worker_id in holding:
                lengths[worker_id] = lengths.get(worker_id, 0) + 1
        return lengths

    def _remove(self, worker_id: str, cached: _Cached, content_hash: bytes) -> None:
        if content_hash not in cached.hashes:
            return
        cached.hashes.discard(content_hash)
        holders = self._holders[content_hash]
        holders.discard(worker_id)
        if not holders:
            del self._holders[content_hash]
