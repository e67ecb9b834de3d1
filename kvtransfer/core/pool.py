"""The blocks of the host pool and who owns each."""

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from enum import Enum

from halfmoon.errors import InternalError


class Use(Enum):
    """What a block is held for."""

    OFFERED = "offered"
    """Written by the engine, read by a peer."""
    FILLING = "filling"
    """Being written by a transport."""
    DELIVERED = "delivered"
    """Verified, being read by the engine."""
    STORING = "storing"
    """Being written for the prefix store, by the engine or by a tier below."""
    STORED = "stored"
    """A page of the prefix store."""


@dataclass(frozen=True, slots=True)
class BlockOwner:
    """The one owner of a block: a use, and the handle (its tag), pull or put (its id) that it is for."""

    use: Use
    key: Hashable


class BlockPool:
    """Indices 0 to `total - 1`, each free or owned by exactly one owner. The block freed last is given out first."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._free = list(range(total - 1, -1, -1))
        self._owners: dict[int, BlockOwner] = {}
        self._held: defaultdict[BlockOwner, set[int]] = defaultdict(set)

    @property
    def free_count(self) -> int:
        """Blocks without owner."""
        return len(self._free)

    @property
    def used_count(self) -> int:
        """Blocks with an owner."""
        return len(self._owners)

    def owner_of(self, block: int) -> BlockOwner | None:
        """None for a free block."""
        return self._owners.get(block)

    def held_by(self, owner: BlockOwner) -> frozenset[int]:
        """All blocks of an owner."""
        return frozenset(self._held.get(owner, ()))

    def allocate(self, count: int, owner: BlockOwner) -> tuple[int, ...]:
        """Takes `count` free blocks. Raises InternalError when there are fewer."""
        if count > len(self._free):
            raise InternalError(f"{count} host blocks asked for, {len(self._free)} free")
        blocks = tuple(self._free.pop() for _ in range(count))
        for block in blocks:
            self._own(block, owner)
        return blocks

    def release(self, blocks: Iterable[int], owner: BlockOwner) -> None:
        """Gives blocks back. Raises InternalError, and changes nothing, when one of them is not `owner`'s."""
        given = tuple(blocks)
        self._require(given, owner)
        for block in given:
            self._disown(block, owner)
            self._free.append(block)

    def hand_over(self, blocks: Iterable[int], owner: BlockOwner, to: BlockOwner) -> None:
        """Changes the owner. Raises InternalError, and changes nothing, when one of them is not `owner`'s."""
        given = tuple(blocks)
        self._require(given, owner)
        for block in given:
            self._disown(block, owner)
            self._own(block, to)

    def check(self) -> None:
        """Raises InternalError unless free and owned blocks add up to all of them, each counted once."""
        free = set(self._free)
        held = [block for blocks in self._held.values() for block in blocks]
        whole = free | set(held) == set(range(self.total))
        if not whole or len(self._free) + len(held) != self.total or set(held) != set(self._owners):
            raise InternalError(f"host pool of {self.total} blocks: {len(self._free)} free, {len(held)} held")

    def _require(self, blocks: tuple[int, ...], owner: BlockOwner) -> None:
        strangers = [block for block in blocks if self._owners.get(block) != owner]
        if strangers or len(set(blocks)) != len(blocks):
            raise InternalError(f"host blocks {strangers or list(blocks)} are not {owner.use.value} for this owner")

    def _own(self, block: int, owner: BlockOwner) -> None:
        self._owners[block] = owner
        self._held[owner].add(block)

    def _disown(self, block: int, owner: BlockOwner) -> None:
        del self._owners[block]
        held = self._held[owner]
        held.discard(block)
        if not held:
            del self._held[owner]
