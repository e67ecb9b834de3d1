"""The engine computes what the model says, whatever is batched, cached, split or taken away in between."""

from dataclasses import dataclass, replace

import pytest

from halfmoon.engine.core import EngineCore
from halfmoon.engine.request import Task
from halfmoon.errors import CancelledError, ContextLengthError, InternalError, InvalidRequestError
from halfmoon.request import FinishReason, OutputToken, SamplingParams
from halfmoon.runner.runner import Runner
from tests.engine.small import (
    END_ID,
    MAX_MODEL_LEN,
    PAGE_SIZE,
    Outcome,
    flush,
    generate,
    greedy,
    make_core,
    prompt,
    run,
    submit,
)

SAMPLED = SamplingParams(24, seed=(1 << 63) + 5, n=4, temperature=1.0, top_p=0.9, ignore_eos=True)


def test_alone_and_among_many_are_equal(runner: Runner) -> None:
    core = make_core(runner)
    prompts = [prompt(length, length) for length in (1, 5, 15, 16, 17, 40, 64, 65, 100)]
    alone = [generate(make_core(runner), each, greedy(20)).ids() for each in prompts]
    together = [submit(core, each, greedy(20)) for each in prompts]
    run(core, *together)
    assert [outcome.ids() for outcome in together] == alone


def test_a_cached_prefix_changes_no_token(runner: Runner) -> None:
    core = make_core(runner)
    shared = prompt(50, 1)
    first = generate(core, shared + prompt(10, 2), greedy(12))
    for tail in (prompt(10, 2), prompt(7, 3), ()):
        fresh = generate(make_core(runner), shared + tail, greedy(12))
        again = generate(core, shared + tail, greedy(12))
        assert again.ids() == fresh.ids()
        assert fresh.started[0].cached_tokens == 0
        assert again.started[0].cached_tokens == 48
    assert first.started[0].cached_tokens == 0


def test_a_prompt_that_is_cached_whole_still_computes_its_last_page(runner: Runner) -> None:
    core = make_core(runner)
    ids = prompt(2 * PAGE_SIZE, 4)
    generate(core, ids, greedy(4))
    assert generate(core, ids, greedy(4)).started[0].cached_tokens == PAGE_SIZE


def test_generated_pages_are_reused_by_a_longer_prompt(runner: Runner) -> None:
    core = make_core(runner)
    ids = prompt(10, 5)
    answer = generate(core, ids, greedy(30)).ids()
    turn = ids + tuple(answer) + prompt(3, 6)
    again = generate(core, turn, greedy(8))
    assert again.started[0].cached_tokens == (len(turn) - 3 - 1) // PAGE_SIZE * PAGE_SIZE
    assert again.ids() == generate(make_core(runner), turn, greedy(8)).ids()


def test_seeded_choices_are_equal_alone_and_among_others(runner: Runner) -> None:
    ids = prompt(37, 7)
    alone = generate(make_core(runner), ids, SAMPLED)
    core = make_core(runner)
    others = [submit(core, prompt(20 + each, each), greedy(30)) for each in range(6)]
    among = submit(core, ids, SAMPLED)
    run(core, among, *others)
    choices = [alone.ids(choice) for choice in range(4)]
    assert [among.ids(choice) for choice in range(4)] == choices
    assert len({tuple(each) for each in choices}) == 4


def test_choice_0_of_many_is_what_one_choice_gives(runner: Runner) -> None:
    one = SamplingParams(24, seed=SAMPLED.seed, temperature=1.0, top_p=0.9, ignore_eos=True)
    ids = prompt(37, 7)
    assert generate(make_core(runner), ids, one).ids() == generate(make_core(runner), ids, SAMPLED).ids(0)


@pytest.mark.parametrize("length", [20, 32])
def test_a_preempted_request_gives_the_tokens_that_it_would_have_given(runner: Runner, length: int) -> None:
    params = [
        greedy(90),
        replace(SAMPLED, max_tokens=90),
        SamplingParams(90, seed=3, ignore_eos=True, frequency_penalty=1.5),
    ]
    prompts = [prompt(length + each, 10 + each) for each in range(3)]
    expected = [generate(make_core(runner), ids, each) for ids, each in zip(prompts, params, strict=True)]
    core = make_core(runner, pages=MAX_MODEL_LEN // PAGE_SIZE)
    outcomes = [submit(core, ids, each) for ids, each in zip(prompts, params, strict=True)]
    run(core, *outcomes)
    assert core.counters.preemptions > 0
    for outcome, wanted in zip(outcomes, expected, strict=True):
        for choice in range(outcome.request.params.n):
            assert outcome.ids(choice) == wanted.ids(choice)


def test_a_split_request_gives_the_tokens_of_one_engine(runner: Runner) -> None:
    for length in (5, 32, 75):
        for params in (greedy(10, logprobs=3), SAMPLED):
            whole = generate(make_core(runner), prompt(length, length), params)
            first, rest = _split(runner, prompt(length, length), params)
            for choice in range(params.n):
                assert first.ids(choice) + rest.ids(choice) == whole.ids(choice)
                assert rest.finish(choice) is FinishReason.LENGTH


def test_an_attached_request_awaits_only_the_pages_that_are_not_cached(runner: Runner) -> None:
    ids = prompt(75, 9)
    prefill = make_core(runner)
    first = submit(prefill, ids, greedy(4), Task.PREFILL, publish=True)
    run(prefill, first)
    decode = make_core(runner)
    generate(decode, ids[:40] + prompt(20, 3), greedy(2))
    rest = submit(decode, ids, greedy(4), Task.ATTACH)
    decode.step()
    flush(decode)
    assert rest.started[0].missing == (2, 3, 4)
    assert rest.started[0].cached_tokens == 32
    _deliver(decode, rest, first)
    assert first.ids() + rest.ids() == generate(make_core(runner), ids, greedy(4)).ids()


def test_a_published_prompt_gives_its_cached_pages_too(runner: Runner) -> None:
    core = make_core(runner)
    ids = prompt(75, 9)
    fresh = submit(core, ids, greedy(1), Task.PREFILL, publish=True)
    run(core, fresh)
    again = submit(core, ids, greedy(1), Task.PREFILL, publish=True)
    run(core, again)
    assert again.started[0].cached_tokens == 64
    assert sorted(again.pages) == sorted(fresh.pages) == [0, 1, 2, 3, 4]
    for index in range(4):
        assert (again.pages[index] == fresh.pages[index]).all()


def test_a_handle_that_is_short_of_a_page_ends_the_request(runner: Runner) -> None:
    core = make_core(runner)
    outcome = submit(core, prompt(40), greedy(4), Task.ATTACH)
    core.step()
    core.attach(outcome.request.request_id, [OutputToken(0, 0, 9)])
    flush(core)
    assert isinstance(outcome.error, InternalError)
    core.check()


def test_end_and_stop_tokens_end_a_choice_at_once(runner: Runner) -> None:
    ids = prompt(12, 11)
    free = generate(make_core(runner), ids, greedy(40)).ids()
    stop = next(token for token in free if free.index(token) >= 5)
    place = free.index(stop)
    stopped = generate(make_core(runner), ids, greedy(40, stop_token_ids=(stop,)))
    assert stopped.ids() == free[: place + 1]
    assert stopped.finish() is FinishReason.STOP


def test_the_end_token_as_the_first_token_is_the_whole_answer(runner: Runner) -> None:
    params = SamplingParams(40, temperature=0.0, logit_bias={END_ID: 100.0})
    outcome = generate(make_core(runner), prompt(12, 11), params)
    assert outcome.ids() == [END_ID]
    assert outcome.finish() is FinishReason.STOP


def test_min_tokens_holds_the_end_token_back(runner: Runner) -> None:
    params = SamplingParams(40, temperature=0.0, logit_bias={END_ID: 100.0}, min_tokens=5)
    outcome = generate(make_core(runner), prompt(12, 11), params)
    assert END_ID not in outcome.ids()[:5]
    assert outcome.ids()[5:] == [END_ID]


def test_max_tokens_of_one_gives_one_token(runner: Runner) -> None:
    outcome = generate(make_core(runner), prompt(12, 11), greedy(1))
    assert len(outcome.ids()) == 1
    assert outcome.finish() is FinishReason.LENGTH


def test_the_context_bounds_the_output(runner: Runner) -> None:
    outcome = generate(make_core(runner), prompt(MAX_MODEL_LEN - 3, 12), greedy(100))
    assert len(outcome.ids()) == 3
    assert outcome.finish() is FinishReason.LENGTH


def test_prompt_logprobs_skip_the_cache_and_match_what_decoding_says(runner: Runner) -> None:
    core = make_core(runner)
    ids = prompt(70, 13)
    answer = generate(core, ids, greedy(8, logprobs=2))
    scored = generate(core, ids + tuple(answer.ids()), SamplingParams(0, prompt_logprobs=2))
    assert scored.started[0].cached_tokens == 0
    assert scored.tokens == []
    assert scored.prompt_logprobs[0].chosen is None
    assert len(scored.prompt_logprobs) == 78
    for token, entry in zip(answer.tokens, scored.prompt_logprobs[70:], strict=True):
        assert entry.chosen is not None
        assert token.logprobs is not None
        assert token.logprobs.chosen is not None
        assert entry.chosen.logprob == pytest.approx(token.logprobs.chosen.logprob, abs=1e-4)
        assert [each.token_id for each in entry.top] == [each.token_id for each in token.logprobs.top]


def test_an_abort_frees_everything_wherever_the_request_is(runner: Runner) -> None:
    core = make_core(runner, pages=MAX_MODEL_LEN // PAGE_SIZE)
    running = submit(core, prompt(20, 1), SAMPLED)
    for _ in range(4):
        core.step()
    prefilling = submit(core, prompt(150, 2), greedy(9))
    attached = submit(core, prompt(20, 3), greedy(9), Task.ATTACH)
    core.step()
    queued = submit(core, prompt(200, 4), greedy(9))
    core.step()
    for outcome in (running, prefilling, attached, queued):
        assert not outcome.ended
        core.abort(outcome.request.request_id)
        flush(core)
        assert isinstance(outcome.error, CancelledError)
    core.check()
    assert core.pool.used == 0
    assert generate(core, prompt(20, 1), SAMPLED).error is None


def test_stopped_choices_end_and_the_others_go_on(runner: Runner) -> None:
    expected = generate(make_core(runner), prompt(37, 7), SAMPLED)
    core = make_core(runner)
    outcome = submit(core, prompt(37, 7), SAMPLED)
    for _ in range(5):
        core.step()
    assert core.stop_choices(outcome.request.request_id, [1, 3]) == 2
    assert core.stop_choices(outcome.request.request_id, [1, 3]) == 0
    run(core, outcome)
    assert outcome.ids(2) == expected.ids(2)
    assert 0 < len(outcome.ids(1)) < 24


@pytest.mark.parametrize("stopped", [[0], [1, 3], [0, 1, 2]])
def test_choices_stopped_while_the_prompt_is_awaited_do_not_start(runner: Runner, stopped: list[int]) -> None:
    ids = prompt(37, 7)
    expected = generate(make_core(runner), ids, SAMPLED)
    first, rest = _attaching(runner, ids, SAMPLED)
    assert rest.core.stop_choices(rest.outcome.request.request_id, stopped) == len(stopped)
    assert rest.core.stop_choices(rest.outcome.request.request_id, stopped) == 0
    _deliver(rest.core, rest.outcome, first)
    for choice in range(4):
        assert rest.outcome.ids(choice) == ([] if choice in stopped else expected.ids(choice)[1:])


def test_a_request_whose_choices_are_all_stopped_while_it_awaits_its_prompt_is_over(runner: Runner) -> None:
    _, rest = _attaching(runner, prompt(37, 7), SAMPLED)
    assert rest.core.stop_choices(rest.outcome.request.request_id, [0, 1, 2, 3]) == 4
    run(rest.core, rest.outcome)
    assert rest.outcome.error is None


@pytest.mark.parametrize(("ids", "error"), [((), InvalidRequestError), (prompt(MAX_MODEL_LEN), ContextLengthError)])
def test_what_can_never_run_is_refused(runner: Runner, ids: tuple[int, ...], error: type[Exception]) -> None:
    outcome = submit(make_core(runner), ids, greedy(4))
    assert outcome.ended
    assert isinstance(outcome.error, error)


def test_a_request_id_in_use_is_refused_and_the_first_goes_on(runner: Runner) -> None:
    core = make_core(runner)
    first = submit(core, prompt(9), greedy(4))
    second = Outcome(first.request)
    core.submit(first.request, second.take)
    flush(core)
    assert isinstance(second.error, InvalidRequestError)
    run(core, first)
    assert len(first.ids()) == 4


def test_lower_priority_numbers_are_served_first(runner: Runner) -> None:
    core = make_core(runner, pages=MAX_MODEL_LEN // PAGE_SIZE)
    first = submit(core, prompt(200, 1), greedy(4))
    core.step()
    late = submit(core, prompt(200, 2), greedy(4), priority=1)
    urgent = submit(core, prompt(200, 3), greedy(4), priority=-1)
    run(core, first, urgent)
    assert not late.ended
    run(core, late)


@dataclass(frozen=True, slots=True)
class _Attaching:
    """A request that awaits its prompt's pages."""

    core: EngineCore
    outcome: Outcome


def _attaching(runner: Runner, ids: tuple[int, ...], params: SamplingParams) -> tuple[Outcome, _Attaching]:
    prefill, decode = make_core(runner), make_core(runner)
    first = submit(prefill, ids, params, Task.PREFILL, publish=True)
    run(prefill, first)
    rest = submit(decode, ids, params, Task.ATTACH)
    decode.step()
    flush(decode)
    return first, _Attaching(decode, rest)


def _split(runner: Runner, ids: tuple[int, ...], params: SamplingParams) -> tuple[Outcome, Outcome]:
    first, rest = _attaching(runner, ids, params)
    _deliver(rest.core, rest.outcome, first)
    assert rest.core.counters.prompt_tokens_computed == 0
    return first, rest.outcome


def _deliver(decode: EngineCore, rest: Outcome, first: Outcome) -> None:
    for index in rest.started[0].missing:
        decode.deliver(rest.request.request_id, index, first.pages[index])
    decode.attach(rest.request.request_id, first.tokens)
    flush(decode)
    run(decode, rest)
    assert rest.error is None
