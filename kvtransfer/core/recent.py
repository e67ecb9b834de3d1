"""A bounded memory of what has ended."""

from collections.abc import Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class RecentSet(Generic[Item]):
    """Remembers the last `bound` items added."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._items: dict[Item, None] = {}

    def add(self, item: Item) -> None:
        """Forgets the oldest item when full."""
        self._items.pop(item, None)
        self._items[item] = None
        if len(self._items) > self._bound:
            del self._items[next(iter(self._items))]

    def __contains__(self, item: Item) -> bool:
        return item in self._items
