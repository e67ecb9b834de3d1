"""Any sequence of operations on a pool, next to a naive model of it."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from halfmoon.cache.pool import PagePool

PAGES = 6
CHAINS = [[bytes([chain, depth]) * 8 for depth in range(4)] for chain in range(3)]


class PoolMachine(RuleBasedStateMachine):
    """Sequences come, share, fill pages and go; a reader follows the reported changes."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(PAGES)
        self.sequences: list[list[int]] = []
        self.contents: dict[int, bytes] = {}
        self.cached: list[int] = []  # the next to be evicted comes first
        self.reader: set[bytes] = set()
        self.kept: set[bytes] = set()
        self.candidates: dict[bytes, None] = {}

    @property
    def references(self) -> Counter[int]:
        return Counter(page for pages in self.sequences for page in pages)

    @rule(count=st.integers(0, PAGES + 1))
    def allocate(self, count: int) -> None:
        unknown = PAGES - len(self.references) - len(self.cached)
        pages = self.pool.allocate(count)
        if count > unknown + len(self.cached):
            assert pages is None
            return
        assert pages is not None
        assert len(set(pages)) == count
        assert not set(pages) & set(self.references)
        evicted, self.cached = self.cached[: max(0, count - unknown)], self.cached[max(0, count - unknown) :]
        assert pages[min(count, unknown) :] == evicted
        for page in evicted:
            content = self.contents.pop(page)
            self.kept.discard(content)
            self.candidates.pop(content, None)
        self.sequences.append(pages)

    @rule(chain=st.sampled_from(CHAINS), length=st.integers(0, 4))
    def match(self, chain: list[bytes], length: int) -> None:
        named = {content: page for page, content in self.contents.items()}
        expected: list[int] = []
        for content in chain[:length]:
            if content not in named:
                break
            expected.append(named[content])
        assert self.pool.match(chain[:length]) == expected
        self.cached = [page for page in self.cached if page not in expected]
        self.sequences.append(expected)

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        pages = data.draw(st.sampled_from(self.sequences))
        part = pages[: data.draw(st.integers(0, len(pages)))]
        self.pool.share(part)
        self.sequences.append(part)

    @precondition(lambda self: self.references)
    @rule(data=st.data(), chain=st.sampled_from(CHAINS), depth=st.integers(0, 3), keep=st.booleans())
    def register(self, data: st.DataObject, chain: list[bytes], depth: int, keep: bool) -> None:
        page, content = data.draw(st.sampled_from(sorted(self.references))), chain[depth]
        self.pool.register(page, content, keep=keep)
        if content in self.contents.values() or page in self.contents:
            return
        self.contents[page] = content
        if keep:
            self.kept.add(content)
            self.candidates[content] = None

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        pages = self.sequences.pop(data.draw(st.integers(0, len(self.sequences) - 1)))
        self.pool.release(pages)
        left = self.references
        resting = [page for page in reversed(pages) if page not in left and page in self.contents]
        self.cached += resting
        for content in (self.contents[page] for page in resting):
            if content in self.kept:
                self.candidates.setdefault(content)

    @rule(count=st.integers(1, 3))
    def keep_in_store(self, count: int) -> None:
        expected = list(self.candidates)[:count]
        assert self.pool.take_candidates(count) == expected
        assert [self.contents[self.pool.page_of(each) or 0] for each in expected] == expected
        for content in expected:
            del self.candidates[content]

    @rule()
    def report(self) -> None:
        stored, removed = self.pool.drain_changes()
        assert not set(stored) & set(removed)
        self.reader = (self.reader - set(removed)) | set(stored)
        assert self.reader == set(self.contents.values())

    @rule()
    def begin_to_read(self) -> None:
        """A snapshot taken at any moment is a start: the changes that come later lead on from it."""
        self.reader = set(self.pool.snapshot())

    @invariant()
    def every_page_is_accounted_for(self) -> None:
        self.pool.check()
        assert self.pool.used == len(self.references)
        assert self.pool.available == PAGES - len(self.references)
        assert self.pool.candidates == len(self.candidates)
        assert sorted(self.pool.snapshot()) == sorted(self.contents.values())


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
