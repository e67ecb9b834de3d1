"""Latencies of one request, and a level's summary."""

import numpy as np
import pytest

from bench.levels import Level
from bench.samples import Sample
from bench.summary import Objectives, summarize


def sample(*arrivals: float, counts: list[int] | None = None, error: str | None = None, sent: float = 1.0) -> Sample:
    """An answer of 10 prompt tokens that ended with its last chunk."""
    counts = counts or [1] * len(arrivals)
    finished = arrivals[-1] if arrivals else sent
    return Sample(sent, sent, finished, 10, sum(counts), list(arrivals), counts, error)


def test_latencies_of_tokens_that_come_one_by_one() -> None:
    one = sample(1.5, 1.6, 1.9)
    assert one.ttft == pytest.approx(0.5)
    assert one.tpot == pytest.approx(0.2)
    assert one.end_to_end == pytest.approx(0.9)
    assert list(one.inter_token_latencies()) == pytest.approx([0.1, 0.3])


def test_tokens_that_come_together_share_the_gap_before_them() -> None:
    one = sample(2.0, 2.4, 2.5, counts=[2, 4, 1])
    gaps = list(one.inter_token_latencies())
    assert gaps == pytest.approx([0.0, 0.1, 0.1, 0.1, 0.1, 0.1])
    assert one.tpot == pytest.approx(np.mean(gaps))


def test_an_answer_of_one_token_has_no_time_per_token() -> None:
    one = sample(2.0)
    assert one.tpot is None
    assert list(one.inter_token_latencies()) == []


def test_rates_count_answered_requests_alone() -> None:
    samples = [sample(2.0, 3.0), sample(2.0, 3.0), sample(error="HTTP 503")]
    got = summarize(Level(3, concurrency=2), samples, duration=4.0, cpu_seconds=0.2, objectives=Objectives())
    assert (got.requests, got.failed, got.errors) == (3, 1, {"HTTP 503": 1})
    assert (got.requests_per_second, got.output_tokens_per_second, got.total_tokens_per_second) == (0.5, 1.0, 6.0)
    assert got.client_cpu == pytest.approx(0.05)
    assert got.goodput is None
    assert got.ttft is not None
    assert got.ttft.count == 2


@pytest.mark.parametrize(
    ("objectives", "good"),
    [
        (Objectives(ttft=0.5), 2),
        (Objectives(tpot=0.2), 2),
        (Objectives(ttft=0.5, tpot=0.2), 1),
        (Objectives(ttft=9, tpot=9), 4),
    ],
)
def test_goodput_counts_answers_within_all_bounds(objectives: Objectives, good: int) -> None:
    samples = [
        sample(1.4, 1.5, 1.6),
        sample(1.4, 2.0, 2.6),
        sample(2.0, 2.1, 2.2),
        sample(2.0, 3.0, 4.0),
        sample(error="no answer"),
    ]
    got = summarize(Level(5, rate=1.0), samples, duration=2.0, cpu_seconds=0, objectives=objectives)
    assert got.goodput == good / 2.0


def test_a_level_at_which_nothing_was_answered_has_no_latencies() -> None:
    got = summarize(Level(1), [sample(error="x")], duration=1.0, cpu_seconds=0, objectives=Objectives(ttft=1))
    assert (got.ttft, got.tpot, got.itl, got.end_to_end, got.goodput) == (None, None, None, None, 0.0)


def test_answers_shorter_than_asked_are_counted() -> None:
    short = sample(1.5, 1.6)
    short.wanted_tokens = 5
    got = summarize(Level(2), [short, sample(1.5)], duration=1.0, cpu_seconds=0, objectives=Objectives())
    assert got.short == 1
