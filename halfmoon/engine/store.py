"""The engine's side of the prefix store: pages go out before they are reused, and come back before they are computed.

The store works elsewhere and later. What it must know goes out as events; it answers with calls between two steps.
"""

from collections import deque
from collections.abc import Sequence as Items

import jax
import numpy as np
from numpy.typing import NDArray

from halfmoon.cache.pool import PagePool
from halfmoon.engine.request import PagesOffered, PagesSought, SearchAbandoned
from halfmoon.engine.scheduler import Scheduler
from halfmoon.engine.sequence import Job
from halfmoon.errors import InternalError
from halfmoon.runner.runner import Runner

_OFFERS = 2
"""Offers that wait for their answer: an answer to the last step's comes before the next step, and one more is made."""

_PAGES_PER_OFFER = 4
"""Copying a page takes a millisecond or two: next to a prefill step, or to nothing, so many do not show."""

_RESCUED_PER_STEP = 8
_RESCUED_BYTES = 64 << 20
"""Bounds of copies that wait for the store because their pages were evicted before it could answer."""


class PageOffers:
    """Offers pages to the store, few at a time, and copies out those that it wants."""

    def __init__(self, runner: Runner, pool: PagePool) -> None:
        self._runner = runner
        self._pool = pool
        self._unanswered: deque[list[bytes]] = deque()
        self._rescued: dict[bytes, jax.Array] = {}
        self._most_rescued = max(1, _RESCUED_BYTES // runner.config.geometry.block_bytes)
        self._rescued_this_step = 0
        self._not_offered: deque[bytes] = deque()

    @property
    def waiting(self) -> int:
        """Pages that have to be offered yet."""
        return self._pool.candidates + len(self._not_offered)

    def next(self, *, decoding: bool) -> PagesOffered | None:
        """At the end of a step, the next offer, of one page where a decode step waits; None when there is none now."""
        self._rescued_this_step = 0
        if len(self._unanswered) >= _OFFERS:
            return None
        count = 1 if decoding else _PAGES_PER_OFFER
        hashes = [self._not_offered.popleft() for _ in range(min(count, len(self._not_offered)))]
        hashes += self._pool.take_candidates(count - len(hashes))
        if not hashes:
            return None
        self._unanswered.append(hashes)
        return PagesOffered(tuple(hashes))

    def copy(self, hashes: Items[bytes]) -> list[jax.Array | None]:
        """Answers the oldest offer: the pages wanted of it, each [1, *page]; None for one that is no longer there."""
        offered = self._unanswered.popleft()
        copies = [self._copy(each) for each in hashes]
        self._pool.end_offer(offered)
        for each in offered:
            self._rescued.pop(each, None)
        return copies

    def rescue(self, page: int, content: bytes) -> None:
        """Copies a page that is about to be written over, as long as there are few such copies."""
        full = self._rescued_this_step == _RESCUED_PER_STEP or len(self._rescued) >= self._most_rescued
        if full or content in self._rescued:
            return
        self._rescued_this_step += 1
        (self._rescued[content],) = self._gather(page)
        if not any(content in offered for offered in self._unanswered):
            self._not_offered.append(content)

    def _copy(self, content: bytes) -> jax.Array | None:
        page = self._pool.page_of(content)
        if content in self._rescued or page is None:
            return self._rescued.get(content)
        (copied,) = self._gather(page)
        return copied

    def _gather(self, page: int) -> list[jax.Array]:
        return [array for array, _ in self._runner.gather_pages([page])]


class PageSearches:
    """Prompts that hold pages and wait for the store to fill them."""

    def __init__(self, runner: Runner, scheduler: Scheduler) -> None:
        self._runner = runner
        self._scheduler = scheduler
        self._page_size = runner.config.geometry.page_size
        self._jobs: dict[int, Job] = {}

    def begin(self, job: Job) -> PagesSought:
        """The job's prompt waits from now on."""
        self._jobs[job.arrival] = job
        lead, tokens = job.lead, len(job.sought) * self._page_size
        return PagesSought(
            search=job.arrival,
            request_id=job.request_id,
            first=lead.computed // self._page_size,
            hashes=job.sought,
            seconds=self._scheduler.seconds_to_compute(lead, tokens),
            source=job.request.source,
        )

    def fill(self, search: int, first: int, blocks: Items[NDArray[np.generic]]) -> bool:
        """Writes pages `first`.. of the prompt; False, and nothing written, when nobody waits for them."""
        job = self._jobs.get(search)
        if job is None:
            return False
        self._runner.scatter_pages(job.lead.pages[first : first + len(blocks)], blocks)
        return True

    def end(self, search: int, pages: int) -> Job | None:
        """The first `pages` of those sought are right, the rest is to be computed; None when nobody waits for them."""
        job = self._jobs.pop(search, None)
        if job is None:
            return None
        job.sought = ()
        self._scheduler.advance(job.lead, pages * self._page_size)
        self._scheduler.compute(job.lead)
        return job

    def abandon(self, job: Job) -> SearchAbandoned | None:
        """The job ends: tells the store if that still looks for something."""
        return SearchAbandoned(job.arrival) if self._jobs.pop(job.arrival, None) else None

    def check(self, jobs: Items[Job]) -> None:
        """Raises InternalError unless those that wait are among the jobs that are alive."""
        stale = [each.request_id for each in self._jobs.values() if each not in jobs]
        if stale:
            raise InternalError(f"pages are looked for without a request: {stale}")
