"""The interface of a tier below host memory (disk, a cluster's pool), and its rules.

A tier keeps pages by content hash and may lose any of them at any time: it is a cache. It never gives wrong bytes:
`read` says for each page that its bytes are those that were written, or that there is none.

Threads. One thread calls `contains`, `read` and `write`, one call at a time; these may block. `knows`, `contents`,
`touch` and `usage` come from the event loop at any time, also while another call runs, and never block. `close` comes
when no call runs, or from the loop after the last call was given up.

Memory. Places to read into and bytes to write lie in memory that was registered before. They are the tier's while its
call runs and the caller's before and after, however it ends: a call returns only when nothing touches them any more.

Time. A call ends soon after its `deadline`, a `time.monotonic()` time; what is not done by then counts as not there.

Errors. Whatever happens to a page is told by what is returned, and what the owner of the machine must know by a line in
the log; the methods raise for bugs alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kvtransfer.region import Region


@dataclass(frozen=True, slots=True)
class TierPage:
    """A page to write: its content hash, the `block_checksum` of its bytes, and the bytes: uint8 [block bytes]."""

    content_hash: bytes
    checksum: int
    data: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class TierPlace:
    """Where a page is to be read into: uint8 [block bytes]. Holds garbage unless the read succeeds."""

    content_hash: bytes
    data: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class TierUsage:
    """Counters since the start, in pages, and what is held now.

    `dropped` went to make room or could not be written, `damaged` were found to be wrong. `limit_bytes` is 0 where the
    bound is not this worker's. `age_seconds` is the time since the page that would go next was used, 0 if unknown.
    """

    stored: int = 0
    dropped: int = 0
    damaged: int = 0
    bytes: int = 0
    limit_bytes: int = 0
    age_seconds: float = 0.0

    @property
    def changes(self) -> int:
        """Pages that came or went, counted after they did: while it stays the same, the tier holds the same."""
        return self.stored + self.dropped + self.damaged


class StoreTier(Protocol):
    """A tier below host memory. See the rules above."""

    @property
    def name(self) -> str:
        """Its label in metrics: "disk", "cluster"."""

    def register(self, region: Region) -> None:
        """Names memory that pages will be read into or written from, which outlives the tier; before the first use."""

    def knows(self, content_hash: bytes) -> bool:
        """Whether the page is here for all that can be said without asking anybody."""

    def contents(self) -> frozenset[bytes]:
        """All pages that it knows; none where others can store too, and would have to be asked."""

    def touch(self, hashes: Sequence[bytes]) -> None:
        """These pages were used, without being read from here; the last is the one used last."""

    def contains(self, hashes: Sequence[bytes], *, deadline: float) -> list[bool]:
        """Whether each page is here."""

    def read(self, places: Sequence[TierPlace], *, deadline: float) -> list[int | None]:
        """Brings pages back: the checksum of each, which its bytes have; None for one that is not to be had."""

    def write(self, pages: Sequence[TierPage], *, deadline: float) -> list[bool]:
        """Keeps pages, dropping those used least recently where room is short; whether each is kept now."""

    def usage(self) -> TierUsage:
        """For metrics."""

    def close(self) -> None:
        """Gives up what it holds of the system; what is kept outlasts it where the tier can. Idempotent."""
