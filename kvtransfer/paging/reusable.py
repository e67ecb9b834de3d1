"""What of a prompt a worker need not compute: pages on its device and in its prefix store. Plain Python."""

from collections.abc import Iterable


class ReusablePages:
    """The union of both places, and how it changes. Content hashes; `in_store` may be asked from any thread."""

    def __init__(self) -> None:
        self._on_device: set[bytes] = set()
        self._in_store: set[bytes] = set()
        self._changed: dict[bytes, None] = {}

    def in_store(self, content: bytes) -> bool:
        """Whether the store had a page when it was last heard of."""
        return content in self._in_store

    @property
    def stored(self) -> int:
        """Pages in the store."""
        return len(self._in_store)

    def device_changed(self, stored: Iterable[bytes], removed: Iterable[bytes]) -> None:
        """Takes changes of the device's prefix cache: first `removed`, then `stored`."""
        self._change(self._on_device, stored, removed)

    def store_changed(self, stored: Iterable[bytes] = (), removed: Iterable[bytes] = ()) -> None:
        """Takes changes of the store, likewise."""
        self._change(self._in_store, stored, removed)

    def replace_store(self, contents: Iterable[bytes]) -> None:
        """Takes all that the store has."""
        now = set(contents)
        self.store_changed(stored=now - self._in_store, removed=self._in_store - now)

    def take_changes(self) -> tuple[list[bytes], list[bytes]]:
        """Pages (that can be reused, that cannot any more) of those that changed since the last call."""
        changed, self._changed = list(self._changed), {}
        stored = [each for each in changed if self._has(each)]
        return stored, [each for each in changed if not self._has(each)]

    def _has(self, content: bytes) -> bool:
        return content in self._on_device or content in self._in_store

    def _change(self, place: set[bytes], stored: Iterable[bytes], removed: Iterable[bytes]) -> None:
        removed, stored = list(removed), list(stored)
        place.difference_update(removed)
        place.update(stored)
        self._changed.update(dict.fromkeys([*removed, *stored]))
