"""Decode steps run one ahead of the host, and nobody can tell by the tokens, the pages or the slots."""

from collections.abc import Sequence
from dataclasses import replace

import jax
import pytest

from halfmoon.engine.scheduler import Scheduler
from halfmoon.errors import CancelledError
from halfmoon.request import FinishReason, SamplingParams
from halfmoon.runner.batch import DecodeRow
from halfmoon.runner.runner import Runner
from tests.engine.small import PAGE_SIZE, Outcome, flush, generate, greedy, make_core, prompt, run, submit

SEEDED = SamplingParams(40, seed=11, temperature=1.0, top_p=0.9, ignore_eos=True, logprobs=2)
PENALISED = replace(SEEDED, seed=12, frequency_penalty=1.2, repetition_penalty=1.3, min_tokens=5)
FORKED = replace(SEEDED, seed=13, n=3)
MIX = [greedy(40), SEEDED, PENALISED, FORKED]


@pytest.fixture
def lockstep(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Undo it to let steps run ahead again."""
    monkeypatch.setattr(Scheduler, "steady", property(lambda _: False))
    return monkeypatch


class Calls:
    """Where the tokens of a runner's decode steps came from."""

    def __init__(self, runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead: list[bool] = []
        self._decode = runner.decode
        monkeypatch.setattr(runner, "decode", self._record)

    def _record(self, rows: Sequence[DecodeRow], tokens: jax.Array | None = None) -> jax.Array:
        self.ahead.append(tokens is not None)
        return self._decode(rows, tokens)


def stop_of(ids: tuple[int, ...], runner: Runner, after: int) -> int:
    """A token that a greedy answer writes for the first time after so many others."""
    free = generate(make_core(runner), ids, greedy(40)).ids()
    return next(token for token in free if free.index(token) >= after)


def test_a_lone_sequence_takes_its_tokens_from_the_device(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    core, calls = make_core(runner), Calls(runner, monkeypatch)
    generate(core, prompt(9), greedy(20))
    assert calls.ahead == [False, *[True] * 18], "19 steps follow the first token; the first of them is read by nobody"
    assert core.counters.decode_steps == 19
    assert core.counters.tokens_generated == 20


def test_steps_in_turn_and_ahead_give_the_same(runner: Runner, lockstep: pytest.MonkeyPatch) -> None:
    def together() -> list[Outcome]:
        core = make_core(runner)
        outcomes = [submit(core, prompt(14 + each, each), params) for each, params in enumerate(MIX)]
        run(core, *outcomes)
        return outcomes

    in_turn = together()
    lockstep.undo()
    for ahead, expected in zip(together(), in_turn, strict=True):
        for choice in range(expected.request.params.n):
            assert ahead.ids(choice) == expected.ids(choice)
        assert sorted(map(repr, ahead.tokens)) == sorted(map(repr, expected.tokens))


@pytest.mark.parametrize("length", [12, PAGE_SIZE - 6, PAGE_SIZE - 5, PAGE_SIZE - 4])
def test_a_row_for_an_ended_sequence_is_dropped_and_its_page_comes_back(runner: Runner, length: int) -> None:
    ids = prompt(length, 11)
    stop = stop_of(ids, runner, 3)
    core = make_core(runner)
    outcome = submit(core, ids, greedy(40, stop_token_ids=(stop,)))
    run(core, outcome)
    assert outcome.ids()[-1] == stop
    assert outcome.finish() is FinishReason.STOP
    assert core.counters.decode_steps == len(outcome.tokens), "one step more than tokens after the first"
    assert (core.idle, core.pool.used) == (False, 1), "what the wasted row writes is nobody else's"
    core.check()
    core.step()
    assert (core.idle, core.pool.used) == (True, 0)
    assert core.counters.tokens_generated == len(outcome.tokens)
    core.check()


def test_a_request_that_joins_beside_a_wasted_row_gets_its_own_tokens(runner: Runner) -> None:
    ids, others = prompt(12, 11), [prompt(30 + each, 20 + each) for each in range(3)]
    expected = [generate(make_core(runner), each, greedy(30)).ids() for each in others]
    core = make_core(runner, pages=16)
    stopped = submit(core, ids, greedy(40, stop_token_ids=(stop_of(ids, runner, 5),)))
    running = submit(core, others[0], greedy(30))
    while not stopped.ended:
        core.step()
        flush(core)
    joined = [submit(core, each, greedy(30)) for each in others[1:]]
    run(core, running, *joined)
    assert [each.ids() for each in (running, *joined)] == expected
    assert core.idle
    assert core.pool.used == 0


@pytest.mark.parametrize("params", MIX, ids=["greedy", "seeded", "penalised", "forked"])
def test_an_abort_while_a_step_is_under_way_frees_everything_at_once(runner: Runner, params: SamplingParams) -> None:
    core = make_core(runner)
    outcome, other = submit(core, prompt(15), params), submit(core, prompt(20, 2), greedy(25))
    for _ in range(6):
        core.step()
    core.abort(outcome.request.request_id)
    flush(core)
    assert isinstance(outcome.error, CancelledError)
    core.check()
    run(core, other)
    assert core.pool.used == 0
    assert other.ids() == generate(make_core(runner), prompt(20, 2), greedy(25)).ids()


def test_choices_stopped_while_a_step_is_under_way_send_no_more(runner: Runner) -> None:
    core = make_core(runner)
    outcome = submit(core, prompt(15), FORKED)
    for _ in range(6):
        core.step()
    assert core.stop_choices(outcome.request.request_id, [0, 2]) == 2
    flush(core)
    sent = len(outcome.ids(0)), len(outcome.ids(2))
    run(core, outcome)
    assert (len(outcome.ids(0)), len(outcome.ids(2))) == sent
    assert outcome.ids(1) == generate(make_core(runner), prompt(15), FORKED).ids(1)
    assert core.pool.used == 0


def test_a_request_that_cannot_be_admitted_does_not_stop_running_ahead(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = make_core(runner, pages=16)
    first = submit(core, prompt(180, 1), greedy(20))
    while not first.tokens:
        core.step()
        flush(core)
    second, calls = submit(core, prompt(180, 2), greedy(4)), Calls(runner, monkeypatch)
    run(core, first)
    assert sum(calls.ahead) > 12
    assert second.tokens == []
    run(core, second)
    assert second.ids() == generate(make_core(runner), prompt(180, 2), greedy(4)).ids()


def test_without_a_page_for_the_next_token_steps_go_in_turn(runner: Runner) -> None:
    params, prompts = greedy(90), [prompt(20 + each, 30 + each) for each in range(4)]
    expected = [generate(make_core(runner), ids, params).ids() for ids in prompts]
    core = make_core(runner, pages=16)
    outcomes = [submit(core, ids, params) for ids in prompts]
    run(core, *outcomes)
    assert core.counters.preemptions > 0
    assert [outcome.ids() for outcome in outcomes] == expected
    assert core.pool.used == 0
