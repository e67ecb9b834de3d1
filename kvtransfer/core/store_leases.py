"""Leases of stored pages that their engine holds."""

from collections.abc import Sequence
from dataclasses import dataclass

from halfmoon.errors import InvalidRequestError, LeaseExpiredError
from kvtransfer.core.recent import RecentSet

_REMEMBERED = 4096
"""Releases that may overtake their acquisitions."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """Pages pinned under a lease, until `expires` on the plane's monotonic clock."""

    hashes: tuple[bytes, ...]
    expires: float


class StoreLeases:
    """Leases by the ids that the engine drew. Whoever ends one unpins its pages."""

    def __init__(self) -> None:
        self._runs: dict[int, StoredRun] = {}
        self._ended: RecentSet[int] = RecentSet(_REMEMBERED)

    def __len__(self) -> int:
        return len(self._runs)

    def require_new(self, lease_id: int) -> None:
        """Raises LeaseExpiredError for a lease that has ended, InvalidRequestError for one that runs, or no id."""
        if lease_id in self._ended:
            raise LeaseExpiredError(f"lease {lease_id:x} was released while it waited for pages")
        if not lease_id or lease_id in self._runs:
            raise InvalidRequestError(f"lease {lease_id:x} exists, or is none")

    def grant(self, lease_id: int, hashes: Sequence[bytes], expires: float) -> None:
        """A new lease of pinned pages; raises as `require_new`."""
        self.require_new(lease_id)
        self._runs[lease_id] = StoredRun(tuple(hashes), expires)

    def end(self, lease_id: int) -> StoredRun | None:
        """Ends a lease; None when there is none."""
        self._ended.add(lease_id)
        return self._runs.pop(lease_id, None)

    def expire(self, now: float) -> list[StoredRun]:
        """Ends the leases past their time."""
        late = [lease_id for lease_id, run in self._runs.items() if now >= run.expires]
        return [run for lease_id in late if (run := self.end(lease_id)) is not None]
