"""What a bounded number of bytes is spent on, and what goes first."""

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from halfmoon.errors import InternalError

Key = TypeVar("Key", bound=Hashable)


@dataclass(slots=True)
class _Item:
    size: int
    used_at: float


class ByteLru(Generic[Key]):
    """Keys with sizes that add up to at most `bound` bytes; the one used least recently goes first."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self._items: OrderedDict[Key, _Item] = OrderedDict()
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """Held now."""
        return self._bytes

    @property
    def oldest_use(self) -> float | None:
        """When the key that would go next was used; None when there is none."""
        return next(iter(self._items.values())).used_at if self._items else None

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: Key) -> bool:
        return key in self._items

    def __iter__(self) -> Iterator[Key]:
        """The keys, the one that would go next first."""
        return iter(self._items)

    def make_room(self, size: int) -> list[Key]:
        """Forgets keys until `size` more bytes fit, and returns them; forgets none when so many can never fit."""
        gone: list[Key] = []
        while size <= self.bound < self._bytes + size:
            key, item = self._items.popitem(last=False)
            self._bytes -= item.size
            gone.append(key)
        return gone

    def add(self, key: Key, size: int, used_at: float) -> None:
        """A new key, used last. Raises InternalError for a known one, or when it does not fit."""
        if key in self._items or self._bytes + size > self.bound:
            raise InternalError(f"{size} bytes more than {self._bytes} of {self.bound}, or for a key that is there")
        self._items[key] = _Item(size, used_at)
        self._bytes += size

    def touch(self, key: Key, used_at: float) -> None:
        """A key, if it is known, was used last."""
        item = self._items.get(key)
        if item is not None:
            item.used_at = used_at
            self._items.move_to_end(key)

    def remove(self, key: Key) -> bool:
        """Forgets a key; whether it was known."""
        item = self._items.pop(key, None)
        if item is not None:
            self._bytes -= item.size
        return item is not None

    def check(self) -> None:
        """Raises InternalError unless the sizes add up and keep the bound."""
        if self._bytes != sum(item.size for item in self._items.values()) or self._bytes > self.bound:
            raise InternalError(f"{len(self._items)} keys with {self._bytes} of {self.bound} bytes do not add up")
