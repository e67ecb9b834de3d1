"""The two ends of a way to move blocks, as the workers run them."""

from dataclasses import dataclass
from typing import Protocol

from kvtransfer.bench.cases import Case


@dataclass(frozen=True, slots=True)
class Offer:
    """What the reader must know of one case: where the owner listens, and what its way needs beyond that.

    `base` is the address of the pool in the owner's process; `handle_id`, `incarnation` and `checksums` (one for each
    place of the pool) are those of a handle over the whole pool.
    """

    address: str = ""
    base: int = 0
    handle_id: bytes = b""
    incarnation: int = 0
    checksums: tuple[int, ...] = ()


class OwnerSide(Protocol):
    """Serves the blocks of one case at a time. Used in the event loop of its process."""

    async def offer(self, case: Case) -> Offer:
        """Serves this case from now on."""

    def close(self) -> None:
        """Ends all threads and connections; idempotent."""


class ReaderSide(Protocol):
    """Reads the blocks of one case at a time into its own pool."""

    def prepare(self, case: Case, offer: Offer) -> None:
        """Reads this case from now on."""

    def read(self) -> None:
        """One batch: returns when all blocks are in place. Raises TransferError when they are not."""

    def close(self) -> None:
        """Ends all threads and connections; idempotent."""
