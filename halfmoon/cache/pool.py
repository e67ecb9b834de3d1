"""The pool of device pages: reference counts, and reuse of full pages by content hash.

Every page is in exactly one place: free (content worthless), cached (content known by hash, nobody uses it, least
recently used first), or used (one reference a sequence that reads it). Page 0 is the device's scratch page and never
part of the pool.

Pages of known content can be kept in a store below before they are evicted: each is a candidate once when its content
becomes known, and again whenever it comes to rest, for the store may have forgotten it since. One that is evicted
before the store has answered is shown to `on_evict`, so that its content can be saved before it is written over.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence

from halfmoon.errors import InternalError


class PagePool:
    """Pages 1..pages. Not thread-safe: the engine's thread owns it."""

    def __init__(self, pages: int) -> None:
        self.total = pages
        self._free: deque[int] = deque(range(1, pages + 1))
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._references: dict[int, int] = {}
        self._by_hash: dict[bytes, int] = {}
        self._hash_of: dict[int, bytes] = {}
        self._stored: dict[bytes, None] = {}
        self._removed: dict[bytes, None] = {}
        self._to_keep: set[int] = set()
        self._candidates: OrderedDict[int, None] = OrderedDict()
        self._offered: set[bytes] = set()
        self.on_evict: Callable[[int, bytes], None] = lambda page, content: None

    @property
    def available(self) -> int:
        """Pages that can be allocated now: free and cached ones."""
        return len(self._free) + len(self._cached)

    @property
    def used(self) -> int:
        """Pages that some sequence holds."""
        return len(self._references)

    @property
    def candidates(self) -> int:
        """Pages of which the store does not know yet."""
        return len(self._candidates)

    def allocate(self, count: int) -> list[int] | None:
        """So many pages of unknown content, one reference each; None, and nothing taken, when there are too few."""
        if count > self.available:
            return None
        pages = [self._free.popleft() if self._free else self._evict() for _ in range(count)]
        self._references.update(dict.fromkeys(pages, 1))
        return pages

    def match(self, hashes: Sequence[bytes]) -> list[int]:
        """The pages that hold the longest known prefix of a hash chain, each with one more reference."""
        pages: list[int] = []
        for content in hashes:
            page = self._by_hash.get(content)
            if page is None:
                break
            pages.append(page)
        self.share(pages)
        return pages

    def share(self, pages: Sequence[int]) -> None:
        """Adds a reference to pages that are used or cached."""
        for page in pages:
            self._cached.pop(page, None)
            self._references[page] = self._references.get(page, 0) + 1

    def release(self, pages: Sequence[int]) -> None:
        """Drops one reference of each page; later pages of a prefix are forgotten before earlier ones."""
        for page in reversed(pages):
            left = self._references[page] - 1
            if left:
                self._references[page] = left
                continue
            del self._references[page]
            if page in self._hash_of:
                self._cached[page] = None
                self._nominate(page)
            else:
                self._free.append(page)

    def register(self, page: int, content: bytes, *, keep: bool = True) -> None:
        """Says that a used page is full and holds `content`. The first page to hold a content keeps the name.

        Without `keep` it is no candidate for the store: another worker's store is where it belongs.
        """
        if content in self._by_hash or page in self._hash_of:
            return
        self._by_hash[content] = page
        self._hash_of[page] = content
        self._removed.pop(content, None)
        self._stored[content] = None
        if keep:
            self._to_keep.add(page)
            self._nominate(page)

    def take_candidates(self, count: int) -> list[bytes]:
        """The contents of up to `count` candidates, the oldest first: they are offered now, until `end_offer`."""
        taken = [self._candidates.popitem(last=False)[0] for _ in range(min(count, len(self._candidates)))]
        contents = [self._hash_of[page] for page in taken]
        self._offered.update(contents)
        return contents

    def end_offer(self, contents: Iterable[bytes]) -> None:
        """The store has what it wants of these."""
        self._offered.difference_update(contents)

    def page_of(self, content: bytes) -> int | None:
        """The page that holds a content now."""
        return self._by_hash.get(content)

    def drain_changes(self) -> tuple[list[bytes], list[bytes]]:
        """Hashes (stored, removed) since the last call."""
        stored, removed = list(self._stored), list(self._removed)
        self._stored.clear()
        self._removed.clear()
        return stored, removed

    def snapshot(self) -> list[bytes]:
        """All hashes known."""
        return list(self._by_hash)

    def check(self) -> None:
        """Raises InternalError unless every page is in exactly one place."""
        places = [*self._free, *self._cached, *self._references]
        if sorted(places) != list(range(1, self.total + 1)):
            raise InternalError(
                f"page pool of {self.total}: {len(self._free)} free, {len(self._cached)} cached, {self.used} used"
            )
        if any(page not in self._hash_of for page in self._cached):
            raise InternalError("a cached page has no content hash")
        if not self._candidates.keys() <= self._to_keep <= self._hash_of.keys():
            raise InternalError("a page without known content is to be kept")

    def _nominate(self, page: int) -> None:
        if page in self._to_keep:
            self._candidates[page] = None

    def _evict(self) -> int:
        page, _ = self._cached.popitem(last=False)
        content = self._hash_of.pop(page)
        if page in self._candidates or content in self._offered:
            self.on_evict(page, content)
        self._candidates.pop(page, None)
        self._to_keep.discard(page)
        del self._by_hash[content]
        self._stored.pop(content, None)
        self._removed[content] = None
        return page
