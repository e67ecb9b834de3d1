"""The part of the host pool that the prefix store uses, and what it may take."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from halfmoon.errors import InternalError, InvalidRequestError
from kvtransfer.core.pool import BlockOwner, BlockPool, Use
from kvtransfer.core.store_index import StoredBlock, StoreIndex

_STORED = BlockOwner(Use.STORED, "prefix store")


@dataclass(frozen=True, slots=True)
class _Claim:
    owner: BlockOwner
    block: int


class HostStore:
    """At most `bound` blocks of a pool, each claimed (somebody writes a page) or stored.

    Stored pages that nobody has pinned are spare: whoever needs their blocks gets them. The store itself takes free
    blocks, or drops spare pages of its own, but never the last `reserve` blocks that others could have.
    """

    def __init__(self, pool: BlockPool, *, bound: int, reserve: int = 0, tiers: Iterable[str] = ()) -> None:
        self.bound = bound
        self._pool = pool
        self._reserve = reserve
        self._tiers = tuple(tiers)
        self._index = StoreIndex(self._tiers)
        self._claims: dict[bytes, _Claim] = {}
        self.stored = 0
        self.dropped = 0

    @property
    def spare_count(self) -> int:
        """Blocks that `drop` can free now."""
        return self._index.spare_count

    @property
    def block_count(self) -> int:
        """Blocks claimed or stored."""
        return len(self._index) + len(self._claims)

    @property
    def oldest_use(self) -> float | None:
        """The time of the least recent use among the spare pages; None when there is none."""
        return self._index.oldest_use

    @property
    def contents(self) -> frozenset[bytes]:
        """All pages stored."""
        return frozenset(self._index)

    def __contains__(self, content_hash: bytes) -> bool:
        return content_hash in self._index

    def drop(self, count: int) -> None:
        """Frees the blocks of `count` spare pages."""
        for _ in range(count):
            self._pool.release([self._index.pop_oldest().block], _STORED)
            self.dropped += 1

    def claim(self, key: Hashable, hashes: Sequence[bytes], now: float) -> dict[bytes, int]:
        """Blocks for the pages, in order, that are neither stored nor claimed: as many as can be had.

        Those that are stored count as used, and do not make room for the others.
        """
        here = [each for each in hashes if self._index.pin_run([each], now)]
        missing = dict.fromkeys(each for each in hashes if each not in self._index and each not in self._claims)
        owner = BlockOwner(Use.STORING, key)
        claimed: dict[bytes, int] = {}
        for content_hash in missing:
            if not self._make_room():
                break
            (block,) = self._pool.allocate(1, owner)
            self._claims[content_hash] = _Claim(owner, block)
            claimed[content_hash] = block
        self._index.unpin(here)
        return claimed

    def require_claims(self, key: Hashable, hashes: Iterable[bytes]) -> None:
        """Raises InvalidRequestError unless all the pages are being written under the key."""
        strangers = set(hashes) - self.claimed_by(key)
        if strangers:
            raise InvalidRequestError(f"{len(strangers)} pages are not being written under this id")

    def claimed_by(self, key: Hashable) -> frozenset[bytes]:
        """The pages that are being written under a key."""
        owner = BlockOwner(Use.STORING, key)
        return frozenset(content_hash for content_hash, claim in self._claims.items() if claim.owner == owner)

    def fill(self, key: Hashable, content_hash: bytes, checksum: int, now: float, *, save: bool = True) -> None:
        """A page claimed under the key is written: from now on it is stored, and goes to the tiers below if `save`."""
        claim = self._take_claim(key, content_hash)
        self._pool.hand_over([claim.block], claim.owner, _STORED)
        self._index.add(content_hash, claim.block, checksum, now, unsaved=self._tiers if save else ())
        self.stored += 1

    def give_up(self, key: Hashable, content_hash: bytes) -> None:
        """A page claimed under the key will not be written."""
        claim = self._take_claim(key, content_hash)
        self._pool.release([claim.block], claim.owner)

    def pin_run(self, hashes: Sequence[bytes], now: float) -> list[StoredBlock]:
        """Pins the longest leading run of the pages that is stored."""
        return self._index.pin_run(hashes, now)

    def unpin(self, hashes: Sequence[bytes]) -> None:
        """Takes one pin from each page."""
        self._index.unpin(hashes)

    def unsaved(self, tier: str, count: int) -> list[bytes]:
        """Up to `count` pages that the tier shall get yet, those added first before others."""
        return [page.content_hash for page in self._index.unsaved(tier, count)]

    def mark_saved(self, content_hash: bytes, tier: str) -> None:
        """The tier has the page, or will not get it."""
        self._index.mark_saved(content_hash, tier)

    def check(self) -> None:
        """Raises InternalError when the store holds other blocks of the pool than it says, or too many."""
        self._index.check()
        stored = len(self._pool.held_by(_STORED))
        if stored != len(self._index) or self.block_count > self.bound:
            raise InternalError(
                f"the prefix store holds {stored} blocks for {len(self._index)} pages, and {len(self._claims)} claims"
            )

    def _make_room(self) -> bool:
        """Whether one more block can be taken now."""
        if self._pool.free_count + self.spare_count <= self._reserve:
            return False
        if self.block_count < self.bound and self._pool.free_count:
            return True
        if not self.spare_count:
            return False
        self.drop(1)
        return True

    def _take_claim(self, key: Hashable, content_hash: bytes) -> _Claim:
        claim = self._claims.get(content_hash)
        if claim is None or claim.owner.key != key:
            raise InternalError(f"page {content_hash.hex()} is not claimed under this id")
        return self._claims.pop(content_hash)
