"""Pages go to a prefix store before they are reused, and come back from it instead of being computed."""

from dataclasses import dataclass, field

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

from halfmoon.engine.core import EngineCore
from halfmoon.engine.request import (
    EngineRequest,
    Event,
    PagesOffered,
    PageSource,
    PagesSought,
    SearchAbandoned,
    StoreLink,
    Task,
)
from halfmoon.errors import CancelledError
from halfmoon.request import SamplingParams
from halfmoon.runner.runner import Runner
from tests.engine.small import PAGE_SIZE, Outcome, flush, generate, greedy, make_core, prompt, run, submit

PAGES = 12


@dataclass(slots=True)
class DictStore:
    """Keeps what it is offered, and answers between two steps."""

    pages: dict[bytes, NDArray[np.generic]] = field(default_factory=dict)
    offers: list[PagesOffered] = field(default_factory=list)
    searches: list[PagesSought] = field(default_factory=list)
    abandoned: list[int] = field(default_factory=list)

    def connect(self, core: EngineCore) -> None:
        """To a core."""
        core.connect_store(StoreLink(self.take, self.pages.__contains__))

    def take(self, event: Event) -> None:
        """Notes what is asked."""
        match event:
            case PagesOffered():
                self.offers.append(event)
            case PagesSought():
                self.searches.append(event)
            case SearchAbandoned():
                self.abandoned.append(event.search)
            case _:
                raise AssertionError(event)

    def keep(self, core: EngineCore) -> None:
        """Answers the offers."""
        offers, self.offers = self.offers, []
        for offer in offers:
            wanted = [each for each in offer.hashes if each not in self.pages]
            for content, block in zip(wanted, core.copy_pages(wanted), strict=True):
                if block is not None:
                    self.pages[content] = np.asarray(block)[0]

    def restore(self, core: EngineCore, *, most: int = 1000) -> None:
        """Answers the searches, with at most so many pages each."""
        searches, self.searches = self.searches, []
        for sought in searches:
            found = [self.pages[each] for each in sought.hashes if each in self.pages][:most]
            assert core.fill_pages(sought.search, sought.first, found)
            core.end_search(sought.search, len(found))


def serve(core: EngineCore, store: DictStore, *outcomes: Outcome) -> None:
    """Runs requests to their end, with the store answering after every step, and empties the store's offers."""
    for _ in range(2000):
        flush(core)
        store.keep(core)
        store.restore(core)
        if all(outcome.ended for outcome in outcomes) and not core.pool.candidates:
            break
        core.step()
    assert all(outcome.ended and outcome.error is None for outcome in outcomes)
    core.check()


def serve_each(core: EngineCore, store: DictStore, prompts: list[tuple[int, ...]]) -> tuple[list[Outcome], int]:
    """One after the other; also how many prompt tokens were computed."""
    before, outcomes = core.counters.prompt_tokens_computed, []
    for ids in prompts:
        outcomes.append(submit(core, ids, greedy(4)))
        serve(core, store, outcomes[-1])
    return outcomes, core.counters.prompt_tokens_computed - before


@pytest.fixture
def core(runner: Runner) -> EngineCore:
    """With few pages."""
    return make_core(runner, pages=PAGES)


@pytest.fixture
def store(core: EngineCore) -> DictStore:
    """Connected to the core."""
    store = DictStore()
    store.connect(core)
    return store


def test_a_working_set_of_many_times_the_pages_is_computed_once(core: EngineCore, store: DictStore) -> None:
    prompts = [prompt(5 * PAGE_SIZE + each, each) for each in range(1, 25)]
    first, computed = serve_each(core, store, prompts)
    assert computed == sum(map(len, prompts)) > 10 * PAGES * PAGE_SIZE
    again, computed = serve_each(core, store, prompts)
    reused = [(len(each) - 1) // PAGE_SIZE * PAGE_SIZE for each in prompts]
    assert computed == sum(map(len, prompts)) - sum(reused)
    assert [each.started[0].cached_tokens for each in again] == reused
    assert [each.ids() for each in again] == [each.ids() for each in first]


def test_nothing_is_looked_for_where_the_store_has_nothing(core: EngineCore, store: DictStore) -> None:
    serve(core, store, submit(core, prompt(40), greedy(2)))
    outcome = submit(core, prompt(80, 9), greedy(2))
    for _ in range(20):
        core.step()
    flush(core)
    assert outcome.ended
    assert store.searches == []


def test_pages_before_those_of_the_store_come_from_the_device(core: EngineCore, store: DictStore) -> None:
    ids = prompt(6 * PAGE_SIZE, 1)
    serve(core, store, submit(core, ids, greedy(2)))
    small = generate(core, ids[: 2 * PAGE_SIZE + 3], greedy(1))
    assert small.started[0].cached_tokens == 2 * PAGE_SIZE
    other = make_core(core._runner, pages=PAGES)
    store.offers.clear()
    store.connect(other)
    serve(other, store, submit(other, ids[: 2 * PAGE_SIZE + 3], greedy(1)))
    outcome = submit(other, ids, greedy(4))
    other.step()
    flush(other)
    assert [(each.first, len(each.hashes)) for each in store.searches] == [(2, 3)]
    serve(other, store, outcome)
    assert outcome.started[0].cached_tokens == 5 * PAGE_SIZE
    assert outcome.ids() == generate(make_core(core._runner), ids, greedy(4)).ids()


def test_what_the_store_does_not_bring_is_computed(core: EngineCore, store: DictStore) -> None:
    ids = prompt(6 * PAGE_SIZE + 5, 2)
    expected = submit(core, ids, greedy(6))
    serve(core, store, expected)
    for most in (0, 1, 4):
        other = make_core(core._runner)
        store.connect(other)
        outcome = submit(other, ids, greedy(6))
        other.step()
        flush(other)
        store.restore(other, most=most)
        run(other, outcome)
        assert outcome.started[0].cached_tokens == most * PAGE_SIZE
        assert other.counters.prompt_tokens_computed == len(ids) - most * PAGE_SIZE
        assert outcome.ids() == expected.ids()


def test_pages_that_were_filled_but_are_not_right_are_computed(core: EngineCore, store: DictStore) -> None:
    ids = prompt(4 * PAGE_SIZE + 1, 3)
    expected = submit(core, ids, greedy(6))
    serve(core, store, expected)
    other = make_core(core._runner)
    store.connect(other)
    outcome = submit(other, ids, greedy(6))
    other.step()
    flush(other)
    (sought,) = store.searches
    damaged = [store.pages[each] + 1 for each in sought.hashes]
    assert other.fill_pages(sought.search, 0, damaged)
    other.end_search(sought.search, 0)
    run(other, outcome)
    assert outcome.ids() == expected.ids()


def test_others_are_computed_while_one_waits_for_the_store(core: EngineCore, store: DictStore) -> None:
    ids = prompt(5 * PAGE_SIZE, 4)
    serve(core, store, submit(core, ids, greedy(2)))
    serve(core, store, submit(core, prompt(10 * PAGE_SIZE, 5), greedy(2)))
    waiting = submit(core, ids, greedy(2))
    other = submit(core, prompt(20, 6), greedy(2))
    for _ in range(10):
        core.step()
    flush(core)
    assert other.ended
    assert not waiting.started
    serve(core, store, waiting)


def test_a_request_aborted_while_it_waits_leaves_nothing(core: EngineCore, store: DictStore) -> None:
    ids = prompt(5 * PAGE_SIZE, 4)
    serve(core, store, submit(core, ids, greedy(2)))
    serve(core, store, submit(core, prompt(10 * PAGE_SIZE, 5), greedy(2)))
    outcome = submit(core, ids, greedy(2))
    core.step()
    flush(core)
    (sought,) = store.searches
    core.abort(outcome.request.request_id)
    flush(core)
    assert isinstance(outcome.error, CancelledError)
    assert store.abandoned == [sought.search]
    core.check()
    assert core.pool.used == 0
    assert not core.fill_pages(sought.search, 0, [store.pages[each] for each in sought.hashes])
    core.end_search(sought.search, 4)
    core.check()


def test_pages_of_another_worker_are_looked_for_when_it_is_said_that_it_has_them(
    core: EngineCore, store: DictStore
) -> None:
    source = PageSource("127.0.0.1:1", 3)
    params = greedy(2)
    outcome = Outcome(EngineRequest("far", prompt(70, 7), params, Task.GENERATE, source=source))
    core.submit(outcome.request, outcome.take)
    core.step()
    flush(core)
    (sought,) = store.searches
    assert (sought.source, sought.first, len(sought.hashes)) == (source, 0, 4)
    core.end_search(sought.search, 0)
    run(core, outcome)


def test_without_a_store_nothing_is_looked_for_whatever_others_have(runner: Runner) -> None:
    core = make_core(runner)
    source = PageSource("127.0.0.1:1", 3)
    outcome = Outcome(EngineRequest("near", prompt(70, 7), greedy(2), Task.GENERATE, source=source))
    core.submit(outcome.request, outcome.take)
    run(core, outcome)
    assert outcome.error is None


def test_a_prompt_whose_logprobs_are_wanted_is_computed(core: EngineCore, store: DictStore) -> None:
    ids = prompt(5 * PAGE_SIZE, 4)
    serve(core, store, submit(core, ids, greedy(2)))
    serve(core, store, submit(core, prompt(10 * PAGE_SIZE, 5), greedy(2)))
    outcome = submit(core, ids, SamplingParams(1, temperature=0.0, prompt_logprobs=1))
    run(core, outcome)
    assert store.searches == []
    assert len(outcome.prompt_logprobs) == len(ids)


def test_pages_pulled_for_decoding_are_not_offered(runner: Runner, core: EngineCore, store: DictStore) -> None:
    ids = prompt(3 * PAGE_SIZE, 8)
    first = submit(make := make_core(runner), ids, greedy(4 * PAGE_SIZE), Task.PREFILL, publish=True)
    run(make, first)
    rest = submit(core, ids, greedy(PAGE_SIZE + 2), Task.ATTACH)
    core.step()
    flush(core)
    for page in rest.started[0].missing:
        core.deliver(rest.request.request_id, page, first.pages[page])
    core.attach(rest.request.request_id, first.tokens)
    serve(core, store, rest)
    assert len(store.pages) == 1


def test_pages_evicted_before_the_store_has_answered_are_saved_as_long_as_they_are_few(
    core: EngineCore, store: DictStore
) -> None:
    ids = prompt(PAGES * PAGE_SIZE - 2, 1)
    run(core, submit(core, ids, greedy(1)))
    assert [len(each.hashes) for each in store.offers] == [4, 4]
    run(core, submit(core, prompt(PAGES * PAGE_SIZE - 2, 2), greedy(1)))
    expected = make_core(core._runner)
    full = DictStore()
    full.connect(expected)
    serve(expected, full, submit(expected, ids, greedy(1)))
    serve(core, store)
    kept = [each for each in full.pages if each in store.pages]
    assert len(kept) == 8
    for each in kept:
        assert (store.pages[each] == full.pages[each]).all()


def test_few_offers_wait_for_an_answer(core: EngineCore, store: DictStore) -> None:
    run(core, *(submit(core, prompt(PAGES * PAGE_SIZE - 9, each), greedy(3)) for each in range(3)))
    assert len(store.offers) == 2
    assert all(len(each.hashes) <= 4 for each in store.offers)
    assert all(isinstance(each, jax.Array) or each is None for each in core.copy_pages(store.offers[0].hashes))


def test_a_page_that_comes_to_rest_again_is_offered_again(core: EngineCore, store: DictStore) -> None:
    ids = prompt(2 * PAGE_SIZE + 1, 1)
    serve(core, store, submit(core, ids, greedy(1)))
    store.pages.clear()
    serve(core, store, submit(core, ids, greedy(1)))
    assert len(store.pages) == 2
