"""Whole runs against a server with known delays: the reported numbers must be those."""

import statistics

import pytest

from bench.arithmetic import Distribution
from bench.levels import Level, poisson_arrivals
from bench.progress import QuietProgress
from bench.report import Report
from bench.session import BenchConfig, run_bench
from bench.summary import Objectives, Summary
from bench.workloads import RandomPrompts
from halfmoon.errors import ConfigError, UnavailableError
from tests.bench.fake_server import MODEL, VOCAB, Behaviour, FakeServer, serving

FIRST, GAP, OUTPUT = 0.12, 0.04, 8
SLACK = 0.04
"""Seconds between a chunk's leaving the server and its being seen, on a busy machine."""


def config(url: str, *levels: Level, **more: object) -> BenchConfig:
    """Random prompts of 20 tokens."""
    return BenchConfig(url, lambda vocab: RandomPrompts(20, OUTPUT, vocab), levels, **more)  # type: ignore[arg-type]


async def measure(behaviour: Behaviour, *levels: Level, **more: object) -> Report:
    """A run against a server that behaves so."""
    with serving(behaviour) as fake:
        return await run_bench(config(fake.url, *levels, **more), QuietProgress())


def median(distribution: Distribution | None) -> float:
    """Its median."""
    assert distribution is not None
    return distribution.p50


def assert_delays_seen(level: Summary, fake: FakeServer) -> None:
    """The medians are those of the server's own clock, with little on top."""
    times = fake.times[-level.requests :]
    first = statistics.median(one[1] - one[0] for one in times)
    last = statistics.median(one[-1] - one[0] for one in times)
    token = statistics.median((one[-1] - one[1]) / (OUTPUT - 1) for one in times)
    assert first >= FIRST
    assert first <= median(level.ttft) < first + SLACK
    assert median(level.tpot) == pytest.approx(token, abs=SLACK / (OUTPUT - 1))
    assert last <= median(level.end_to_end) < last + SLACK


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_closed_loop_reports_the_servers_delays(concurrency: int) -> None:
    with serving(Behaviour(first=FIRST, gap=GAP)) as fake:
        level = Level(3 * concurrency, concurrency=concurrency)
        (got,) = (await run_bench(config(fake.url, level), QuietProgress())).levels
    assert_delays_seen(got, fake)
    assert got.itl is not None
    assert got.itl.count == got.requests * (OUTPUT - 1)
    assert (got.failed, got.short) == (0, 0)
    times = fake.times[-got.requests :]
    busy = max(one[-1] for one in times) - min(one[0] for one in times)
    assert got.output_tokens_per_second == pytest.approx(got.requests * OUTPUT / busy, rel=0.15)
    assert got.total_tokens_per_second == pytest.approx(got.output_tokens_per_second * (20 + OUTPUT) / OUTPUT)


@pytest.mark.parametrize("token_ids", [True, False])
async def test_tokens_are_counted_not_chunks(token_ids: bool) -> None:
    with serving(Behaviour(first=FIRST, gap=GAP, tokens_per_chunk=4, token_ids=token_ids)) as fake:
        report = await run_bench(config(fake.url, Level(3, concurrency=3)), QuietProgress())
    (level,) = report.levels
    assert level.output_tokens == 3 * OUTPUT
    assert_delays_seen(level, fake)


async def test_open_loop_sends_whatever_is_unanswered() -> None:
    with serving(Behaviour(first=1.0)) as fake:
        await run_bench(config(fake.url, Level(20, rate=100.0), warm_up=0), QuietProgress())
        assert fake.most_at_once == 20


async def test_open_loop_sends_at_the_planned_times() -> None:
    with serving(Behaviour()) as fake:
        await run_bench(config(fake.url, Level(10, rate=20.0), warm_up=0), QuietProgress())
    came = [one[0] for one in fake.times[1:]]
    planned = poisson_arrivals(20.0, 10, seed=0)
    lags = [(time - came[0]) - (plan - planned[0]) for time, plan in zip(came, planned, strict=True)]
    assert statistics.median(lags) == pytest.approx(0.0, abs=SLACK)


async def test_closed_loop_keeps_so_many_requests_in_flight() -> None:
    with serving(Behaviour(first=0.02)) as fake:
        await run_bench(config(fake.url, Level(12, concurrency=3), warm_up=2), QuietProgress())
        assert fake.most_at_once == 3


async def test_warm_up_and_probe_are_sent_but_not_counted() -> None:
    with serving(Behaviour()) as fake:
        report = await run_bench(config(fake.url, Level(4, concurrency=2), warm_up=3), QuietProgress())
        assert len(fake.bodies) == 1 + 3 + 4
    assert [level.requests for level in report.levels] == [4]
    assert fake.bodies[-1]["ignore_eos"] is True


async def test_failed_requests_are_counted_and_said() -> None:
    (level,) = (await measure(Behaviour(fail_every=3), Level(6, concurrency=1), warm_up=0)).levels
    assert (level.requests, level.failed) == (6, 2)
    assert level.errors == {"HTTP 503: too busy": 2}


async def test_a_stream_that_is_cut_is_a_failure() -> None:
    behaviour = Behaviour()
    with serving(behaviour) as fake:
        progress = CutAfterStart(behaviour)
        (level,) = (await run_bench(config(fake.url, Level(2, concurrency=1), warm_up=0), progress)).levels
    assert level.failed == 2


async def test_goodput_counts_requests_within_the_objectives() -> None:
    behaviour = Behaviour(first=FIRST, gap=GAP)
    for objectives, share in ((Objectives(ttft=30, tpot=30), 1.0), (Objectives(tpot=GAP / 2), 0.0)):
        (level,) = (await measure(behaviour, Level(4, concurrency=4), objectives=objectives)).levels
        assert level.goodput == pytest.approx(share * level.requests_per_second)


async def test_a_server_that_refuses_extras_is_measured_without_and_the_report_says_so() -> None:
    behaviour = Behaviour(refuse=("ignore_eos", "return_token_ids"), stop_after=5)
    report = await measure(behaviour, Level(2, concurrency=1))
    assert any("ignore_eos" in note for note in report.notes)
    assert any("token ids" in note for note in report.notes)
    (level,) = report.levels
    assert (level.failed, level.short, level.output_tokens) == (0, 2, 10)


async def test_the_report_names_model_and_vocabulary_of_the_server() -> None:
    with serving(Behaviour()) as fake:
        report = await run_bench(config(fake.url, Level(3, concurrency=1)), QuietProgress())
    assert (report.target.model.id, report.target.model.fingerprint) == (MODEL, "f00d")
    assert report.notes == ()
    assert all(token < VOCAB for body in fake.bodies for token in body["prompt"])


async def test_a_wrong_model_a_wrong_key_and_no_server_are_told() -> None:
    with serving(Behaviour(api_key="secret")) as fake:
        with pytest.raises(UnavailableError, match="401: wrong key"):
            await run_bench(config(fake.url), QuietProgress())
        with pytest.raises(ConfigError, match=f"it serves: {MODEL}"):
            await run_bench(config(fake.url, model="other", api_key="secret"), QuietProgress())
    with pytest.raises(UnavailableError, match="no server answers"):
        await run_bench(config(fake.url), QuietProgress())


async def test_a_server_that_answers_no_prompt_is_told_in_its_own_words() -> None:
    with pytest.raises(UnavailableError, match="unknown field prompt"):
        await measure(Behaviour(refuse=("prompt",)), Level(1, concurrency=1))


async def test_a_request_that_takes_too_long_is_a_failure() -> None:
    behaviour = Behaviour()
    with serving(behaviour) as fake:
        slow = SlowAfterStart(behaviour)
        (level,) = (await run_bench(config(fake.url, Level(1, concurrency=1), timeout=0.3, warm_up=0), slow)).levels
    assert level.errors == {"no answer within 0.3 s": 1}


class CutAfterStart(QuietProgress):
    """Makes the server hang up in the middle of answers once the first level begins."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour

    def begin(self, label: str, total: int) -> None:
        """From now on."""
        self._behaviour.cut_after = 3


class SlowAfterStart(CutAfterStart):
    """Makes the server slow once the first level begins."""

    def begin(self, label: str, total: int) -> None:
        """From now on."""
        self._behaviour.first = 1.0
