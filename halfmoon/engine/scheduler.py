"""What the next step computes. Plain Python: no device, no clock, no I/O.

A sequence is in one of four places: `waiting` (holds no pages), `attached` (its pages are being filled from elsewhere),
`prefilling` (its tokens are computed chunk by chunk) or `running` (one token a step). Each is kept in serving order.
"""

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field

from halfmoon.cache.pool import PagePool
from halfmoon.engine.pace import Pace
from halfmoon.engine.sequence import Sequence
from halfmoon.runner.buckets import ROWS_PER_PREFILL, BucketTable, PrefillBucket

_RUNNING_PER_RESERVED_PAGE = 4
"""Running sequences for which one page is kept free at admission, so that growing rarely has to preempt."""


@dataclass(frozen=True, slots=True)
class PlannedChunk:
    """The next `length` tokens of a sequence."""

    sequence: Sequence
    length: int

    @property
    def last(self) -> bool:
        """Whether the sequence is computed completely after it."""
        return self.length == self.sequence.uncomputed


@dataclass(frozen=True, slots=True)
class PrefillPlan:
    """One prefill step."""

    bucket: PrefillBucket
    chunks: list[PlannedChunk]


@dataclass(slots=True)
class Plan:
    """What happens next: sequences admitted, one prefill step or none, one decode step or none.

    `preempted` sequences lost their pages to older ones and wait again.
    """

    preempted: list[Sequence] = field(default_factory=list)
    admitted: list[Sequence] = field(default_factory=list)
    prefill: PrefillPlan | None = None
    decode: list[Sequence] = field(default_factory=list)


class Scheduler:
    """Decides admission, chunks, batches and preemption; owns the pages of all sequences."""

    def __init__(
        self, pool: PagePool, buckets: BucketTable, *, page_size: int, salt: bytes, pace: Pace | None = None
    ) -> None:
        self.pool = pool
        self.waiting: list[Sequence] = []
        self.attached: list[Sequence] = []
        self.prefilling: list[Sequence] = []
        self.running: list[Sequence] = []
        self.pace = pace or Pace()
        self.may_hold: Callable[[bytes], bool] | None = None
        """Whether the prefix store below may have a page; None while there is no store."""
        self._buckets = buckets
        self._page_size = page_size
        self._salt = salt
        self._stuck = False

    @property
    def idle(self) -> bool:
        """Whether no step could do anything."""
        return not (self.waiting or self.prefilling or self.running)

    @property
    def batch(self) -> list[Sequence]:
        """The running sequences that a decode step computes."""
        return self.running[: self._buckets.max_batch]

    @property
    def steady(self) -> bool:
        """Whether decode steps are all there is to do: nothing to prefill, nothing that could be admitted."""
        return not self.prefilling and (self._stuck or not self.waiting)

    @property
    def queued_tokens(self) -> int:
        """Tokens that wait to be computed by prefill steps."""
        return sum(each.uncomputed for each in (*self.waiting, *self.prefilling) if each.job.computes)

    def add(self, sequence: Sequence) -> None:
        """Queues a sequence that holds no pages."""
        insort(self.waiting, sequence, key=lambda each: each.order)
        self._stuck = False

    def plan(self) -> Plan:
        """The next step. Pages that it needs are reserved when this returns."""
        plan = Plan()
        plan.decode = self._plan_decode(plan.preempted)
        plan.admitted = self._admit()
        plan.prefill = self._plan_prefill()
        return plan

    def reserve_next(self, batch: list[Sequence]) -> bool:
        """Gives each sequence a page for the token after its next; False when there are too few without preemption."""
        for sequence in batch:
            if sequence.computed + 1 == len(sequence.pages) * self._page_size:
                page = self.pool.allocate(1)
                if page is None:
                    return False
                sequence.pages += page
        return True

    def seconds_to_compute(self, sequence: Sequence, tokens: int) -> float:
        """About how long prefill steps over the next `tokens` tokens take; 0 without measurements."""
        largest = self._buckets.prefill[-1]
        return self.pace.predict(largest, sequence.computed + tokens // 2) * tokens / largest.tokens

    def compute(self, sequence: Sequence) -> None:
        """From here on the sequence's tokens are computed: nothing more is filled from elsewhere."""
        self._forget(sequence)
        insort(self.prefilling, sequence, key=lambda each: each.order)

    def advance(self, sequence: Sequence, tokens: int, *, keep: bool = True) -> None:
        """Says that the KV of the next `tokens` tokens is in the pages; full pages become reusable.

        `keep` as of `PagePool.register`.
        """
        known = sequence.computed // self._page_size
        sequence.computed += tokens
        sequence.extend_hashes(self._salt, self._page_size, sequence.computed)
        for index in range(known, sequence.computed // self._page_size):
            self.pool.register(sequence.pages[index], sequence.hashes[index], keep=keep)

    def run(self, sequence: Sequence) -> None:
        """Moves a sequence whose newest token alone is not computed to the decode batch."""
        self._forget(sequence)
        insort(self.running, sequence, key=lambda each: each.order)

    def fork(self, lead: Sequence, choice: int) -> tuple[Sequence, tuple[int, int] | None]:
        """Another choice of the lead's prompt: shares full pages; the partial one has to be copied (source, target).

        Without a page for the copy the choice gets no pages: add it, and it will be computed like a preempted one.
        """
        full = lead.computed // self._page_size
        sequence = Sequence(lead.job, choice, list(lead.job.request.prompt))
        if lead.computed % self._page_size == 0:
            copied: list[int] | None = []
        else:
            copied = self.pool.allocate(1)
        if copied is None:
            return sequence, None
        self.pool.share(lead.pages[:full])
        sequence.pages = lead.pages[:full] + copied
        sequence.hashes, sequence.computed = lead.hashes[:full], lead.computed
        return sequence, (lead.pages[full], copied[0]) if copied else None

    def remove(self, sequence: Sequence) -> None:
        """Ends a sequence wherever it is and gives its pages back."""
        self._forget(sequence)
        self._drop_pages(sequence)

    def _forget(self, sequence: Sequence) -> None:
        for place in (self.waiting, self.attached, self.prefilling, self.running):
            if sequence in place:
                place.remove(sequence)

    def _drop_pages(self, sequence: Sequence) -> None:
        self.pool.release(sequence.pages)
        sequence.pages = []
        sequence.computed = 0
        self._stuck = False

    def _admit(self) -> list[Sequence]:
        admitted: list[Sequence] = []
        while self.waiting and self._reserve(self.waiting[0]):
            sequence = self.waiting.pop(0)
            place = self.attached if sequence.job.sought or not sequence.job.computes else self.prefilling
            insort(place, sequence, key=lambda each: each.order)
            admitted.append(sequence)
        self._stuck = bool(self.waiting)
        return admitted

    def _reserve(self, sequence: Sequence) -> bool:
        """Takes cached and new pages for all tokens so far; False, and nothing taken, when there are too few."""
        computes = sequence.job.computes
        usable = len(sequence.tokens) - 1 if computes else len(sequence.tokens)  # a logit needs one token computed
        sequence.hashes.clear()
        if not (computes and sequence.job.wants_prompt_logprobs):
            sequence.extend_hashes(self._salt, self._page_size, usable)
        cached = self.pool.match(sequence.hashes)
        needed = -(-len(sequence.tokens) // self._page_size) - len(cached)
        reserve = -(-len(self.running) // _RUNNING_PER_RESERVED_PAGE)
        fresh = self.pool.allocate(needed) if self.pool.available >= needed + reserve else None
        if fresh is None:
            self.pool.release(cached)
            return False
        sequence.pages = cached + fresh
        sequence.computed = len(cached) * self._page_size
        sequence.job.sought = self._sought(sequence, len(cached))
        del sequence.hashes[len(cached) :]
        return True

    def _sought(self, sequence: Sequence, cached: int) -> tuple[bytes, ...]:
        """The pages after the `cached` ones for which it is worth to ask a prefix store before they are computed."""
        job, rest = sequence.job, tuple(sequence.hashes[cached:])
        if self.may_hold is None or not rest or not job.computes or job.begun:
            return ()
        source = job.request.source
        return rest if self.may_hold(rest[0]) or (source is not None and source.pages > cached) else ()

    def _plan_prefill(self) -> PrefillPlan | None:
        buckets, long_run = self._paced_buckets(), self._buckets.long_run
        chunks: list[PlannedChunk] = []
        ending = 0
        for sequence in self.prefilling:
            length = _chunk_length(sequence.uncomputed, [chunk.length for chunk in chunks], buckets, long_run)
            if length == 0 or ending == ROWS_PER_PREFILL:
                break
            chunks.append(PlannedChunk(sequence, length))
            ending += chunks[-1].last
        bucket = buckets.prefill_for([chunk.length for chunk in chunks]) if chunks else None
        return None if bucket is None else PrefillPlan(bucket, chunks)

    def _paced_buckets(self) -> BucketTable:
        """The shapes that keep a step short, given how deep into their prompts the next sequences are."""
        context = max((each.computed for each in self.prefilling[:ROWS_PER_PREFILL]), default=0)
        long_run = self._buckets.long_run
        return self._buckets.with_prefill(self.pace.allowed(self._buckets.prefill, context, at_least=long_run))

    def _plan_decode(self, preempted: list[Sequence]) -> list[Sequence]:
        """The first sequences that fit the batch, each with a page for its next token; the newest make room."""
        return [each for each in self.batch if each not in preempted and self._grow(each, preempted)]

    def _grow(self, sequence: Sequence, preempted: list[Sequence]) -> bool:
        if sequence.computed < len(sequence.pages) * self._page_size:
            return True
        while (page := self.pool.allocate(1)) is None:
            youngest = self.running[-1]
            self.remove(youngest)
            self.add(youngest)
            preempted.append(youngest)
            if youngest is sequence:
                return False
        sequence.pages += page
        return True


def _chunk_length(uncomputed: int, taken: list[int], buckets: BucketTable, long_run: int) -> int:
    """All that is left if it fits beside `taken`; else as many long runs as the largest bucket has left; 0 for none."""
    if buckets.prefill_for([*taken, uncomputed]) is not None:
        return uncomputed
    largest = buckets.prefill[-1]
    free = largest.tokens - sum(-(-length // largest.run) * largest.run for length in taken)
    return max(0, min(free // long_run, (uncomputed - 1) // long_run) * long_run)
