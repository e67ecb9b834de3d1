"""A worker's prefix cache as several routers must learn it: each gets every change once, or everything anew."""

from collections.abc import Iterable

from halfmoon.v1 import router_pb2


class CacheFeed:
    """The content hashes that a worker caches, and a cursor for each of its routers. Not thread-safe."""

    def __init__(self) -> None:
        self._cached: set[bytes] = set()
        self._cursors: list[FeedCursor] = []

    def __len__(self) -> int:
        return len(self._cached)

    def apply(self, stored: Iterable[bytes], removed: Iterable[bytes]) -> None:
        """Takes changes: first all of `removed`, then all of `stored`."""
        for content_hash in removed:
            self._cached.discard(content_hash)
            self._note(content_hash, False)
        for content_hash in stored:
            self._cached.add(content_hash)
            self._note(content_hash, True)

    def cursor(self) -> "FeedCursor":
        """A new reader, which begins with a snapshot."""
        cursor = FeedCursor(self._cached)
        self._cursors.append(cursor)
        return cursor

    def _note(self, content_hash: bytes, stored: bool) -> None:
        for cursor in self._cursors:
            cursor.note(content_hash, stored)


class FeedCursor:
    """What one router has not been told yet."""

    def __init__(self, cached: set[bytes]) -> None:
        self._cached = cached
        self._pending: dict[bytes, bool] = {}
        self._sequence = 0
        self._whole = True

    def note(self, content_hash: bytes, stored: bool) -> None:
        """Remembers one change; the last of several to the same hash counts."""
        if not self._whole:
            self._pending[content_hash] = stored

    def reset(self) -> None:
        """The router may have missed something: the next delta is a snapshot."""
        self._whole = True
        self._pending.clear()

    def delta(self) -> router_pb2.PrefixCacheDelta:
        """The next delta, numbered from 1; call `reset` when it may not have arrived."""
        self._sequence += 1
        message = router_pb2.PrefixCacheDelta(sequence=self._sequence, snapshot=self._whole)
        if self._whole:
            message.stored.extend(self._cached)
        else:
            message.stored.extend(key for key, stored in self._pending.items() if stored)
            message.removed.extend(key for key, stored in self._pending.items() if not stored)
        self._whole = False
        self._pending.clear()
        return message
