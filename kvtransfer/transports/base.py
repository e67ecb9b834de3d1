"""The transport interface and its rules.

An owner runs one `TransportServer` for each transport; it serves ranges of published blocks to whoever proves to know
their handle's secret. A reader holds one `Transport` for each (peer process, transport).

Memory. The owner's blocks stay as they are from the moment that `ReadGate.begin` grants a read until `ReadGate.end`; a
server calls `end` when it touches the blocks no more, and tells the reader what `end` said. A reader on the same host
may copy without a grant where a `LeaseBoard` shows, before and after, that the lease held all the time. The reader's
destination belongs to the transport while `read_batch` runs, and to the caller before and after: `read_batch` returns
only when nothing writes to the destination any more, however it ends. A destination whose status is not OK holds
garbage.

Threads. `read_batch` blocks. It may run in several threads at once, up to `streams` of them to advantage; the
destinations must not overlap. `close` may come from any thread: it ends reads under way with UNREACHABLE, and waits
for none.

Time. A read has ended by its deadline plus the time to copy one block. `StopSignal.set` ends it in the same way at
once.

Errors. Whatever happens to a read is a `ReadStatus` of it; `read_batch` raises for bugs alone. OK says that the bytes
were in place while the handle was alive and its owner the expected process. It does not replace the checksum.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kvtransfer.core.handle import Read
from kvtransfer.region import Region

if TYPE_CHECKING:
    from kvtransfer.transports.lease_board import LeaseBoard


class ReadStatus(IntEnum):
    """How a read ended. Those below 16 are said by the owner, as one byte on the wire."""

    OK = 0
    STALE_INCARNATION = 1
    """The owner is not the process that the handle is from."""
    LEASE_EXPIRED = 2
    """The handle is unknown, released or withdrawn, or its lease ran out, at the latest while the bytes moved."""
    BAD_PROOF = 3
    """One side does not know the handle's secret."""
    BAD_RANGE = 4
    """The range is not inside one published block of the handle."""
    PROTOCOL = 5
    """The peer speaks something else, or another version."""

    UNREACHABLE = 16
    """No connection, or it broke."""
    TIMEOUT = 17
    """The deadline came."""
    STOPPED = 18
    """Stopped by the caller."""


class BlockRead(NamedTuple):
    """`length` bytes at `offset` of the owner's region number `region`, to `local_offset` of the registered region."""

    region: int
    offset: int
    length: int
    local_offset: int


@dataclass(frozen=True, slots=True)
class ReadKey:
    """What allows to read: the handle's secret, and the process that it must come from."""

    handle_id: bytes = field(repr=False)
    incarnation: int


class StopSignal:
    """Ends a `read_batch` from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped = False
        self._actions: list[Callable[[], None]] = []

    @property
    def stopped(self) -> bool:
        """Whether `set` was called."""
        return self._stopped

    def set(self) -> None:
        """Idempotent; runs the actions that are attached now, in this thread."""
        with self._lock:
            self._stopped = True
            for action in self._actions:
                action()

    @contextmanager
    def attached(self, action: Callable[[], None]) -> Iterator[None]:
        """While inside, `set` runs `action`, which must not block; runs it at once when the signal is set already.

        After leaving, `action` runs no more, so what it touches may be closed.
        """
        with self._lock:
            self._actions.append(action)
            if self._stopped:
                action()
        try:
            yield
        finally:
            with self._lock:
                self._actions.remove(action)


class Transport(Protocol):
    """A reader's way to one peer process. See the rules above."""

    @property
    def name(self) -> str:
        """ "shm", "tcp": as in `TransportEndpoint`."""

    @property
    def streams(self) -> int:
        """Calls of `read_batch` that may run at once to advantage."""

    def register(self, region: Region) -> None:
        """Names the local memory that reads go to, which must outlive the transport; once, before the first read."""

    def read_batch(
        self, key: ReadKey, reads: Sequence[BlockRead], *, deadline: float, stop: StopSignal
    ) -> list[ReadStatus]:
        """Moves all ranges, and returns the status of each. `deadline` is a `time.monotonic()` time.

        A batch has at most `wire.MAX_READS` reads, all of one handle.
        """

    def close(self) -> None:
        """Gives up connections and mappings; idempotent."""


class TransportServer(Protocol):
    """An owner's side. Starts when made, and serves until closed."""

    @property
    def name(self) -> str:
        """As of the `Transport` that speaks to it."""

    @property
    def address(self) -> str:
        """What a reader connects to, for `TransportEndpoint.address`."""

    @property
    def connection_count(self) -> int:
        """Connections that are open."""

    def close(self) -> None:
        """Refuses reads under way, and returns when no thread and no connection is left; idempotent."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A read that has begun: the statuses of its ranges (OK or BAD_RANGE)."""

    read: Read
    statuses: tuple[ReadStatus, ...]


class ReadGate(Protocol):
    """What a server asks before and after it touches blocks; safe to call from any thread."""

    @property
    def incarnation(self) -> int:
        """Of this process."""

    @property
    def region(self) -> Region:
        """The host pool."""

    @property
    def board(self) -> "LeaseBoard | None":
        """What `shm` readers see of the leases, if there is one."""

    def secret_of(self, tag: bytes) -> bytes | None:
        """The handle id behind a public name; None when there is no such handle."""

    def begin(self, handle_id: bytes, reads: Sequence[BlockRead], refuse: Callable[[], None]) -> Grant | None:
        """Keeps the handle's blocks from reuse until `end`; None when the handle is not alive.

        `refuse` must break the connection without blocking: it is called when the reader takes too long to matter.
        """

    def end(self, grant: Grant) -> bool:
        """The blocks are touched no more: was the handle alive all the time? Idempotent: later calls say False."""
