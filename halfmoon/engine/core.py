"""The engine without its thread: takes requests, steps, and says what happened. Every call is from one thread."""

import time
from collections.abc import Callable
from collections.abc import Sequence as Items

import jax
import numpy as np
from numpy.typing import NDArray

from halfmoon.cache.pool import PagePool
from halfmoon.engine.choices import end_ids_of, output_token
from halfmoon.engine.counters import Counters
from halfmoon.engine.decoding import DecodePipeline, Drawn
from halfmoon.engine.pace import Pace
from halfmoon.engine.prefilling import Prefiller
from halfmoon.engine.request import (
    Ended,
    EngineRequest,
    Event,
    PagesReady,
    Progress,
    PromptScored,
    Sink,
    Started,
    StoreEvent,
    StoreLink,
    Task,
    Tokens,
)
from halfmoon.engine.scheduler import PrefillPlan, Scheduler
from halfmoon.engine.sequence import Job, Sequence
from halfmoon.engine.slots import SamplingSlots
from halfmoon.engine.store import PageOffers, PageSearches
from halfmoon.errors import CancelledError, ContextLengthError, HalfmoonError, InternalError, InvalidRequestError
from halfmoon.request import OutputToken, PositionLogprobs
from halfmoon.runner.runner import Runner


class EngineCore:
    """Scheduler, runner and the jobs between them; uses all of the runner's pages, or the first `pages`."""

    def __init__(
        self,
        runner: Runner,
        *,
        end_ids: Items[int],
        salt: bytes,
        pages: int | None = None,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        config = runner.config
        self.counters = Counters()
        self.jobs: dict[str, Job] = {}
        self.pool = PagePool(pages or config.pages)
        self.scheduler = Scheduler(self.pool, config.buckets, page_size=config.geometry.page_size, salt=salt, pace=pace)
        self.outbox: list[tuple[Sink, Event]] = []
        self._runner = runner
        self._max_model_len = config.max_model_len
        self._end_ids = tuple(end_ids)
        self._slots = SamplingSlots(runner, self.scheduler)
        self._prefilling = Prefiller(runner, self.scheduler, self._slots, clock)
        self._decoding = DecodePipeline(runner, self.scheduler, self._slots)
        self._offers = PageOffers(runner, self.pool)
        self._searches = PageSearches(runner, self.scheduler)
        self._store: StoreLink | None = None
        self._arrivals = 0

    @property
    def idle(self) -> bool:
        """Whether a step would do nothing."""
        return self.scheduler.idle and not self._decoding.busy

    @property
    def pages_to_keep(self) -> int:
        """Pages that have to be offered to the prefix store yet."""
        return self._offers.waiting if self._store is not None else 0

    def submit(self, request: EngineRequest, sink: Sink) -> None:
        """Takes a request; one that can never run ends at once with an error."""
        error = self._refusal(request)
        if error is not None:
            self.outbox.append((sink, Ended(error)))
            return
        self._arrivals += 1
        end_ids = frozenset(end_ids_of(request.params, self._end_ids))
        job = Job(request, sink, self._arrivals, end_ids)
        job.sequences.append(Sequence(job, 0, list(request.prompt)))
        self.jobs[request.request_id] = job
        self.scheduler.add(job.lead)

    def abort(self, request_id: str, error: HalfmoonError | None = None) -> None:
        """Ends a request and frees what it holds. Unknown ids are ignored: the request may just have ended."""
        self._settle()
        job = self.jobs.get(request_id)
        if job is not None:
            self._end(job, error or CancelledError(f"request {request_id} was aborted"))

    def stop_choices(self, request_id: str, choices: Items[int]) -> int:
        """Ends choices whose text is complete; returns how many were still running."""
        self._settle()
        job = self.jobs.get(request_id)
        if job is None:
            return 0
        if not job.begun:
            return self._stop_before_begin(job, choices)
        stopped = [each for each in job.sequences if each.choice in choices]
        for sequence in stopped:
            self._finish(sequence)
        return len(stopped)

    def deliver(self, request_id: str, page: int, block: NDArray[np.generic]) -> None:
        """Brings page number `page` of an ATTACH; `block` is free when this returns."""
        job = self.jobs.get(request_id)
        if job is None or page not in job.awaited:
            return
        self._runner.scatter_pages([job.lead.pages[page]], [block])
        job.awaited.discard(page)
        self.counters.blocks_received += 1

    def deliver_array(self, request_id: str, first: int, count: int, blocks: jax.Array) -> None:
        """Brings pages `first`.. of an ATTACH, the first `count` of `blocks` [n, *page] on the device.

        Those that are not awaited are left alone.
        """
        job = self.jobs.get(request_id)
        awaited = set() if job is None else job.awaited & set(range(first, first + count))
        if job is None or not awaited:
            return
        numbers = range(first, first + blocks.shape[0])
        self._runner.scatter_array([job.lead.pages[page] if page in awaited else 0 for page in numbers], blocks)
        job.awaited -= awaited
        self.counters.blocks_received += len(awaited)

    def attach(self, request_id: str, first: Items[OutputToken]) -> None:
        """Starts the choices of an ATTACH whose pages have all been delivered."""
        job = self.jobs.get(request_id)
        if job is None:
            return
        if job.awaited or not first:
            lacking = f"pages {sorted(job.awaited)}" if job.awaited else "the first tokens"
            self._end(job, InternalError(f"request {request_id}: {lacking} were not delivered"))
            return
        job.received = True
        lead = job.lead
        self.scheduler.advance(lead, lead.uncomputed, keep=False)
        self._start_choices(job, first)

    def connect_store(self, link: StoreLink) -> None:
        """From now on pages are offered to a prefix store, and looked for there."""
        self._store = link
        self.scheduler.may_hold = link.may_hold
        self.pool.on_evict = self._offers.rescue

    def copy_pages(self, hashes: Items[bytes]) -> list[jax.Array | None]:
        """The store's answer to an offer, see `PageOffers.copy`."""
        copied = self._offers.copy(hashes)
        self.counters.pages_kept += sum(1 for each in copied if each is not None)
        return copied

    def fill_pages(self, search: int, first: int, blocks: Items[NDArray[np.generic]]) -> bool:
        """Brings pages from the store, see `PageSearches.fill`; `blocks` are free when this returns."""
        return self._searches.fill(search, first, blocks)

    def end_search(self, search: int, pages: int) -> None:
        """The store has no more for a prompt: `pages` that it has filled are right, the rest is computed."""
        job = self._searches.end(search, pages)
        if job is not None:
            self.counters.prompt_tokens_restored += pages * self._runner.config.geometry.page_size
            self._start_prompt(job)

    def step(self) -> None:
        """One turn of the loop: the next decode step goes out and the last one's tokens come in.

        Before the batch changes, or anything else is computed, the last step is read.
        """
        drawn = self._decoding.run_ahead()
        if drawn is None:
            self._settle()
            self._step_by_plan()
        else:
            self.counters.decode_steps += 1
            self._take_tokens(drawn)
        self._offer_pages()

    def check(self) -> None:
        """Raises InternalError when pages or slots are not accounted for."""
        self.pool.check()
        held = sum(1 for job in self.jobs.values() for each in job.sequences if each.slot)
        if held != self._slots.used:
            raise InternalError(f"{self._slots.used} sampling slots are taken, {held} are held")
        if not self.jobs and self.pool.used != len(self._decoding.pages):
            raise InternalError(f"{self.pool.used} pages are held without a request")
        self._searches.check(list(self.jobs.values()))

    def _refusal(self, request: EngineRequest) -> HalfmoonError | None:
        length, size = len(request.prompt), self._max_model_len
        if request.request_id in self.jobs:
            return InvalidRequestError(f"request id {request.request_id!r} is already running", param="request_id")
        if not request.prompt:
            return InvalidRequestError("the prompt has no tokens", param="prompt")
        if length > size or (length == size and request.params.max_tokens):
            message = f"the prompt has {length} tokens; this worker takes {size}, new tokens included"
            return ContextLengthError(message, param="prompt")
        return None

    def _step_by_plan(self) -> None:
        """Admits, computes prompt chunks, and dispatches a step of the running sequences."""
        plan = self.scheduler.plan()
        self.counters.preemptions += len(plan.preempted)
        for sequence in plan.preempted:
            self._slots.give_back(sequence)
        for sequence in plan.admitted:
            self._start(sequence)
        if plan.prefill is not None:
            self._prefill(plan.prefill)
        if plan.decode:
            self.counters.decode_steps += 1
            self._decoding.start(plan.decode)

    def _settle(self) -> None:
        """From here on the host knows every token."""
        self._take_tokens(self._decoding.finish())

    def _start(self, sequence: Sequence) -> None:
        job = sequence.job
        if sequence.written or sequence.choice:
            return  # computed again after it was preempted
        if job.sought:
            self._post_to_store(self._searches.begin(job))
            return
        if job.computes:
            self._start_prompt(job)
            return
        cached = sequence.computed // self._runner.config.geometry.page_size
        job.awaited.update(range(cached, len(sequence.pages)))
        self._post(job, Started(sequence.computed, tuple(sorted(job.awaited))))

    def _start_prompt(self, job: Job) -> None:
        """All that is not computed is in the pages."""
        self.counters.prompt_tokens_cached += job.lead.computed
        self._post(job, Started(job.lead.computed))
        self._publish(job.lead)

    def _prefill(self, plan: PrefillPlan) -> None:
        self.counters.prefill_steps += 1
        complete = {index: each.sequence for index, each in enumerate(plan.chunks) if each.last}
        result = self._prefilling.compute(plan)
        for index, planned in enumerate(plan.chunks):
            sequence = planned.sequence
            self.scheduler.advance(sequence, planned.length)
            self.counters.prompt_tokens_computed += planned.length
            sequence.job.prompt_logprobs.extend(result.prompt_logprobs.get(index, ()))
            self._publish(sequence)
            if not sequence.written:
                self._post(sequence.job, Progress(sequence.computed))
        for sequence, tokens in self._prefilling.draw(complete, result).items():
            self._after_prefill(sequence, tokens)

    def _after_prefill(self, sequence: Sequence, tokens: list[OutputToken]) -> None:
        job = sequence.job
        self.counters.tokens_generated += len(tokens)
        if job.wants_prompt_logprobs:
            self._post_prompt_logprobs(job)
        if tokens:
            self._post(job, Tokens(tuple(tokens)))
        if job.request.task is Task.PREFILL or not tokens:
            self._end(job)
        elif sequence.written:  # computed again after it was preempted
            self._advance_choice(sequence, tokens[0])
        else:
            self._start_choices(job, tokens)

    def _post_prompt_logprobs(self, job: Job) -> None:
        count = job.request.params.prompt_logprobs or 0
        entries = [PositionLogprobs(each.chosen, each.top[:count]) for each in job.prompt_logprobs]
        job.scored = True
        job.prompt_logprobs.clear()
        self._post(job, PromptScored((PositionLogprobs(None), *entries)))

    def _start_choices(self, job: Job, first: Items[OutputToken]) -> None:
        """Makes the prompt's sequence one running sequence for each choice that is not over with its first token."""
        lead = job.lead
        for token in first[1:]:
            if token.finish is None and token.choice not in job.stopped:
                self._start_choice(lead, token)
        if lead.choice in job.stopped:
            self._finish(lead)
        else:
            self._advance_choice(lead, first[0])

    def _start_choice(self, lead: Sequence, first: OutputToken) -> None:
        sequence, copied = self.scheduler.fork(lead, first.choice)
        lead.job.sequences.append(sequence)
        if copied is not None:
            self._runner.copy_page(*copied)
        sequence.tokens.append(first.token_id)
        if sequence.pages:
            self.scheduler.run(sequence)
        else:
            self.scheduler.add(sequence)

    def _stop_before_begin(self, job: Job, choices: Items[int]) -> int:
        """The first tokens are known elsewhere before they are here: what ends with them never starts."""
        stopped = set(choices) & set(range(job.request.params.n)) - job.stopped
        job.stopped |= stopped
        if len(job.stopped) == job.request.params.n:
            self._end(job)
        return len(stopped)

    def _take_tokens(self, drawn: list[Drawn]) -> None:
        """Takes one token for each of some running sequences; a request's tokens go out together."""
        taken: list[tuple[Sequence, OutputToken]] = []
        by_job: dict[Job, list[OutputToken]] = {}
        for each in drawn:
            self.scheduler.advance(each.sequence, 1)
            token = output_token(each.sequence, each.row, each.batch, each.place, self._max_model_len)
            taken.append((each.sequence, token))
            by_job.setdefault(each.sequence.job, []).append(token)
        self.counters.tokens_generated += len(taken)
        for job, tokens in by_job.items():
            self._post(job, Tokens(tuple(tokens)))
        for sequence, token in taken:
            self._advance_choice(sequence, token)

    def _advance_choice(self, sequence: Sequence, token: OutputToken) -> None:
        """Takes a choice's newest token: it runs on, or is over."""
        sequence.tokens.append(token.token_id)
        if token.finish is not None:
            self._finish(sequence)
        elif sequence not in self.scheduler.running:
            self.scheduler.run(sequence)

    def _publish(self, sequence: Sequence) -> None:
        """Copies out the prompt's pages that became complete; the last one counts once the prompt is."""
        job, page_size = sequence.job, self._runner.config.geometry.page_size
        if not job.request.publish:
            return
        ready = sequence.computed // page_size if sequence.uncomputed else len(sequence.pages)
        pages = sequence.pages[sequence.published : ready]
        if pages:
            self._post(job, PagesReady(sequence.published, tuple(self._runner.gather_pages(pages))))
            sequence.published = ready

    def _finish(self, sequence: Sequence) -> None:
        """One choice is over; with the last one the request is."""
        job = sequence.job
        self._slots.give_back(sequence)
        self.scheduler.remove(sequence)
        job.sequences.remove(sequence)
        if not job.sequences:
            self._end(job)

    def _end(self, job: Job, error: HalfmoonError | None = None) -> None:
        for sequence in job.sequences:
            self._slots.give_back(sequence)
            self.scheduler.remove(sequence)
        job.sequences.clear()
        del self.jobs[job.request_id]
        abandoned = self._searches.abandon(job)
        if abandoned is not None:
            self._post_to_store(abandoned)
        self._post(job, Ended(error))

    def _post(self, job: Job, event: Event) -> None:
        self.outbox.append((job.sink, event))

    def _offer_pages(self) -> None:
        offer = self._offers.next(decoding=self._decoding.busy) if self._store is not None else None
        if offer is not None:
            self._post_to_store(offer)

    def _post_to_store(self, event: StoreEvent) -> None:
        if self._store is not None:
            self.outbox.append((self._store.sink, event))
