"""The arrays that an owner keeps for readers: by handle, bounded in bytes and in time. Plain Python; time passed in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from halfmoon.errors import InvalidRequestError, LeaseExpiredError
from kvtransfer.proofs import handle_label


class Sized(Protocol):
    """An array on a device, as far as the shelf cares."""

    @property
    def nbytes(self) -> int:
        """Its size."""


Blocks = TypeVar("Blocks", bound=Sized)


@dataclass(frozen=True, slots=True)
class Part(Generic[Blocks]):
    """`count` blocks of a handle from block `first` on, at the front of `blocks` [n, ...]."""

    first: int
    count: int
    blocks: Blocks

    @property
    def end(self) -> int:
        """The first block after it."""
        return self.first + self.count


@dataclass(eq=False, slots=True)
class Shelved(Generic[Blocks]):
    """What is kept under one handle. `expires` ends it unless somebody reads; `failure` says why it has ended."""

    handle_id: bytes = field(repr=False)
    block_count: int
    expires: float
    parts: list[Part[Blocks]] = field(default_factory=list)
    readers: int = 0
    seal: bytes | None = None
    failure: str = ""

    @property
    def ready(self) -> int:
        """Complete blocks, from the front."""
        return self.parts[-1].end if self.parts else 0

    @property
    def nbytes(self) -> int:
        """Of all its arrays."""
        return sum(part.blocks.nbytes for part in self.parts)

    def find(self, block: int) -> Part[Blocks]:
        """The part that has a ready block."""
        return next(part for part in self.parts if part.first <= block < part.end)


class Shelf(Generic[Blocks]):
    """Belongs to one thread, its counts to all.

    Past `max_bytes` what is longest here unread goes first, then what was to be added.

    An entry lives until it is dropped or runs out: an unsealed one at the time that it was opened for, a sealed one
    after `lease` seconds in which nobody read it (`take` to `give_back`). `on_change` is called with an entry that
    readers should look at.
    """

    def __init__(self, max_bytes: int, lease: float, on_change: Callable[[Shelved[Blocks]], None]) -> None:
        self._max_bytes = max_bytes
        self._lease = lease
        self._on_change = on_change
        self._entries: dict[bytes, Shelved[Blocks]] = {}
        self._nbytes = 0

    @property
    def nbytes(self) -> int:
        """Of all arrays here."""
        return self._nbytes

    @property
    def handle_count(self) -> int:
        """Handles that can be read."""
        return len(self._entries)

    def open(self, handle_id: bytes, block_count: int, expires: float) -> None:
        """Begins a handle, whose blocks follow until `expires`. Raises InvalidRequestError for a known one."""
        if handle_id in self._entries:
            raise InvalidRequestError(f"handle {handle_label(handle_id)} is on the shelf already")
        self._entries[handle_id] = Shelved(handle_id, block_count, expires)

    def add(self, handle_id: bytes, parts: Sequence[Part[Blocks]]) -> None:
        """The next blocks of a handle; nothing happens when it has ended meanwhile, or ends for lack of room."""
        entry = self._entries.get(handle_id)
        if entry is None:
            return
        for part in parts:
            if part.first != entry.ready or part.end > entry.block_count:
                raise InvalidRequestError(f"blocks {part.first} to {part.end} of {entry.block_count} at {entry.ready}")
            if not self._make_room(part.blocks.nbytes, entry):
                self._end(entry, "no room for more pages")
                return
            entry.parts.append(part)
            self._nbytes += part.blocks.nbytes
        self._on_change(entry)

    def seal(self, handle_id: bytes, seal: bytes, now: float) -> None:
        """Completes a handle; its lease starts. Nothing happens when it has ended meanwhile."""
        entry = self._entries.get(handle_id)
        if entry is not None:
            entry.seal = seal
            self._extend(entry, now)
            self._on_change(entry)

    def drop(self, handle_id: bytes, reason: str) -> None:
        """Ends a handle; readers are told why. Idempotent."""
        entry = self._entries.get(handle_id)
        if entry is not None:
            self._end(entry, reason)

    def take(self, handle_id: bytes) -> Shelved[Blocks]:
        """Begins a read. Raises LeaseExpiredError for a handle that is unknown or has ended."""
        entry = self._entries.get(handle_id)
        if entry is None:
            raise LeaseExpiredError(f"handle {handle_label(handle_id)}: not on the device, or ended earlier")
        entry.readers += 1
        return entry

    def give_back(self, entry: Shelved[Blocks], now: float) -> None:
        """Ends a read; the lease of a sealed entry runs anew."""
        entry.readers -= 1
        self._extend(entry, now)

    def expire(self, now: float) -> None:
        """Ends what nobody has read in its time; to be called often."""
        for entry in list(self._entries.values()):
            if now >= entry.expires and not (entry.readers and entry.seal is not None):
                self._end(entry, "the lease ran out")

    def close(self) -> None:
        """Ends all."""
        for entry in list(self._entries.values()):
            self._end(entry, "the worker stops")

    def _extend(self, entry: Shelved[Blocks], now: float) -> None:
        if entry.seal is not None:
            entry.expires = now + self._lease

    def _make_room(self, wanted: int, for_entry: Shelved[Blocks]) -> bool:
        for entry in list(self._entries.values()):
            if self.nbytes + wanted <= self._max_bytes:
                break
            if entry is not for_entry and not entry.readers:
                self._end(entry, "its room was needed")
        return self.nbytes + wanted <= self._max_bytes

    def _end(self, entry: Shelved[Blocks], reason: str) -> None:
        """Its arrays go when no reader has them any more."""
        entry.failure = reason
        self._nbytes -= entry.nbytes
        entry.parts.clear()
        del self._entries[entry.handle_id]
        self._on_change(entry)
