"""The complete pages of the prefix store in host memory: found by content hash, pinned, dropped by age."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from halfmoon.errors import InternalError


@dataclass(eq=False, slots=True)
class StoredBlock:
    """A page in host block `block`. Changed by `StoreIndex` alone; `unsaved` names the tiers that shall get it yet."""

    content_hash: bytes
    block: int
    checksum: int
    used_at: float
    pins: int = 0
    unsaved: set[str] = field(default_factory=set)


class StoreIndex:
    """Every page is pinned or spare. Of the spare ones, those used least recently go first, and those that no tier
    below is to get before those that would be lost.

    The pages of one prompt are of use only together with all before them: so later ones count as used earlier.
    """

    def __init__(self, tiers: Iterable[str] = ()) -> None:
        self._blocks: dict[bytes, StoredBlock] = {}
        self._settled: OrderedDict[bytes, StoredBlock] = OrderedDict()
        self._sole: OrderedDict[bytes, StoredBlock] = OrderedDict()
        self._to_save: dict[str, OrderedDict[bytes, StoredBlock]] = {tier: OrderedDict() for tier in tiers}

    @property
    def spare_count(self) -> int:
        """Pages that can be dropped now."""
        return len(self._settled) + len(self._sole)

    @property
    def oldest_use(self) -> float | None:
        """The time of the least recent use among the spare pages; None when there is none."""
        firsts = [next(iter(each.values())).used_at for each in (self._settled, self._sole) if each]
        return min(firsts, default=None)

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, content_hash: bytes) -> bool:
        return content_hash in self._blocks

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._blocks)

    def add(self, content_hash: bytes, block: int, checksum: int, now: float, *, unsaved: Iterable[str] = ()) -> None:
        """A new page, spare and used last."""
        if content_hash in self._blocks:
            raise InternalError(f"page {content_hash.hex()} is stored twice")
        added = StoredBlock(content_hash, block, checksum, now, unsaved=set(unsaved))
        self._blocks[content_hash] = added
        for tier in added.unsaved:
            self._to_save[tier][content_hash] = added
        self._rest(added)

    def pin_run(self, hashes: Sequence[bytes], now: float) -> list[StoredBlock]:
        """Pins the longest leading run of `hashes` that is here, each page once more."""
        run: list[StoredBlock] = []
        for content_hash in hashes:
            found = self._blocks.get(content_hash)
            if found is None:
                break
            self._spare_of(found).pop(content_hash, None)
            found.pins += 1
            found.used_at = now
            run.append(found)
        return run

    def unpin(self, hashes: Sequence[bytes]) -> None:
        """Takes one pin from each page. Raises InternalError for a page without pins."""
        for content_hash in reversed(hashes):
            found = self._blocks.get(content_hash)
            if found is None or not found.pins:
                raise InternalError(f"page {content_hash.hex()} is not pinned")
            found.pins -= 1
            self._rest(found)

    def pop_oldest(self) -> StoredBlock:
        """Drops the spare page that goes first. Raises InternalError when there is none."""
        spare = self._settled or self._sole
        if not spare:
            raise InternalError("no page can be dropped: all are pinned")
        _, gone = spare.popitem(last=False)
        del self._blocks[gone.content_hash]
        for tier in gone.unsaved:
            del self._to_save[tier][gone.content_hash]
        return gone

    def unsaved(self, tier: str, count: int) -> list[StoredBlock]:
        """Up to `count` pages that the tier shall get, those added first before others."""
        return [page for page, _ in zip(self._to_save[tier].values(), range(count), strict=False)]

    def mark_saved(self, content_hash: bytes, tier: str) -> None:
        """The tier has the page, or will not get it. Does nothing for a page that is gone."""
        found = self._to_save[tier].pop(content_hash, None)
        if found is not None:
            spare = self._spare_of(found).pop(content_hash, None)
            found.unsaved.discard(tier)
            if spare is not None:
                self._rest(found)

    def check(self) -> None:
        """Raises InternalError unless every page is in the one place where it belongs."""
        for spare in (self._settled, self._sole):
            for page in spare.values():
                if page.pins or self._spare_of(page) is not spare or self._blocks.get(page.content_hash) is not page:
                    raise InternalError(f"page {page.content_hash.hex()} with {page.pins} pins is in the wrong place")
        pinned = sum(page.pins > 0 for page in self._blocks.values())
        if pinned + self.spare_count != len(self._blocks):
            raise InternalError(f"{pinned} pages pinned, {self.spare_count} spare, {len(self._blocks)} in all")

    def _spare_of(self, page: StoredBlock) -> OrderedDict[bytes, StoredBlock]:
        return self._sole if page.unsaved else self._settled

    def _rest(self, page: StoredBlock) -> None:
        if not page.pins:
            self._spare_of(page)[page.content_hash] = page
