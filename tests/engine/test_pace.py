"""Prefill steps keep to the time that one may take."""

import pytest

from halfmoon.engine.pace import STEP_SECONDS, Pace
from halfmoon.runner.buckets import PrefillBucket
from halfmoon.runner.runner import Runner
from tests.engine.small import BUCKETS, generate, greedy, make_core, prompt, run, submit

SMALL, MIDDLE, LARGE = PrefillBucket(16, 16), PrefillBucket(64, 16), PrefillBucket(256, 64)
ALL = (SMALL, MIDDLE, LARGE)


def calibrated() -> Pace:
    """1.25 ms a token, and as much again for each 1,000 tokens of context."""
    pace = Pace()
    pace.calibrate({each: each.tokens / 800 for each in ALL}, deep=2 * 256 / 800, context=1000)
    return pace


def test_predictions_grow_with_tokens_and_context() -> None:
    pace = calibrated()
    assert pace.predict(LARGE, 0) == pytest.approx(0.32)
    assert pace.predict(LARGE, 1000) == pytest.approx(0.64)
    assert pace.predict(MIDDLE, 3000) == pytest.approx(0.32)


def test_deeper_prompts_get_smaller_steps() -> None:
    pace = calibrated()
    assert pace.allowed(ALL, 0, at_least=16) == ALL
    assert pace.allowed(ALL, 1000, at_least=16) == (SMALL, MIDDLE)
    assert pace.allowed(ALL, 8000, at_least=16) == (SMALL,)
    assert pace.allowed(ALL, 8000, at_least=64) == (SMALL, MIDDLE)


def test_a_machine_that_slows_down_gets_smaller_steps_and_recovers() -> None:
    pace = calibrated()
    for _ in range(10):
        pace.observe(LARGE, 0, 0.64)
    assert pace.predict(LARGE, 0) == pytest.approx(0.64, rel=0.05)
    assert pace.allowed(ALL, 0, at_least=16) == (SMALL, MIDDLE)
    for _ in range(20):
        pace.observe(MIDDLE, 0, 0.08)
    assert pace.allowed(ALL, 0, at_least=16) == ALL


def test_one_outlier_is_soon_forgotten() -> None:
    pace = calibrated()
    pace.observe(LARGE, 0, 1000.0)
    for _ in range(16):
        pace.observe(MIDDLE, 0, 0.08)
    assert pace.allowed(ALL, 0, at_least=16) == ALL


def test_without_measurements_everything_is_allowed() -> None:
    assert Pace().allowed(ALL, 100_000, at_least=16) == ALL


def test_slow_steps_are_made_short_and_change_no_token(runner: Runner) -> None:
    """With a pace that allows the smallest steps alone, a prompt takes more steps and gives the same tokens."""
    slow = Pace()
    slow.calibrate(dict.fromkeys(BUCKETS.prefill, STEP_SECONDS * 2), deep=1.0, context=64)
    core, usual = make_core(runner, pace=slow), make_core(runner)
    ids = prompt(150, 3)
    outcome = submit(core, ids, greedy(8))
    run(core, outcome)
    assert outcome.ids() == generate(usual, ids, greedy(8)).ids()
    assert core.counters.prefill_steps > usual.counters.prefill_steps
