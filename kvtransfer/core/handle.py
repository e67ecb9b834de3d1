"""One offered prompt: its blocks, what of them is complete, and who reads them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum


class HandleState(Enum):
    """OPEN while the engine writes, SEALED while the lease runs, ENDED while the last reads and writes run out."""

    OPEN = "open"
    SEALED = "sealed"
    ENDED = "ended"


@dataclass(eq=False, slots=True)
class Handle:
    """Changed by `HandleTable` alone. `blocks` are indices of the host pool, `checksums` those of the complete ones.

    `lease`, in seconds, is what a seal or a renewal gives. `expires` ends an OPEN handle (its offer's timeout) or a
    SEALED one (its lease), on the owner's monotonic clock. `lent` are the content hashes of blocks that belong to the
    prefix store, which several handles may share; it is empty for blocks that the engine has offered.
    `being_written` holds until the engine has sealed or withdrawn: until then no block may go to anybody else.
    """

    handle_id: bytes = field(repr=False)
    tag: bytes
    request_id: str
    blocks: tuple[int, ...]
    expires: float
    lease: float
    lent: tuple[bytes, ...] = ()
    state: HandleState = HandleState.OPEN
    checksums: list[int] = field(default_factory=list)
    seal: bytes | None = None
    failure: str = ""
    being_written: bool = True
    ended_at: float = 0.0
    reads: "set[Read]" = field(default_factory=set)
    published: set[int] = field(default_factory=set)

    @property
    def ready_count(self) -> int:
        """Complete blocks, from the front."""
        return len(self.checksums)

    @property
    def busy(self) -> bool:
        """Whether somebody may still touch the blocks."""
        return self.being_written or bool(self.reads)


@dataclass(eq=False, slots=True)
class Read:
    """One read under way. `refuse` makes its reader see an error, when it is waited for no longer."""

    handle: Handle
    refuse: Callable[[], None]
