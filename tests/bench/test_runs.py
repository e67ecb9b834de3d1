"""Whole runs against a server with known delays: the reported numbers must be those."""

import pytest

from bench.arithmetic import Distribution
from bench.levels import Level
from bench.progress import QuietProgress
from bench.report import Report
from bench.session import BenchConfig, run_bench
from bench.summary import Objectives, Summary
from bench.workloads import RandomPrompts
from halfmoon.errors import ConfigError, UnavailableError
from tests.bench.fake_server import MODEL, VOCAB, Behaviour, serving

FIRST, GAP, OUTPUT = 0.12, 0.04, 8
SLACK = 0.03
"""Seconds by which a busy machine may delay what is measured."""


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


def assert_delays_seen(level: Summary, *, gap: float, span: float) -> None:
    """The medians are the server's delays, with little on top."""
    assert FIRST <= median(level.ttft) < FIRST + SLACK
    assert gap * 0.9 <= median(level.tpot) < gap + SLACK / 4
    assert FIRST + span <= median(level.end_to_end) < FIRST + span + 2 * SLACK


async def test_closed_loop_reports_the_servers_delays() -> None:
    report = await measure(Behaviour(first=FIRST, gap=GAP), Level(4, concurrency=1), Level(12, concurrency=4))
    one, four = report.levels
    for level in report.levels:
        assert_delays_seen(level, gap=GAP, span=7 * GAP)
        assert level.itl is not None
        assert level.itl.count == level.requests * (OUTPUT - 1)
        assert (level.failed, level.short) == (0, 0)
    assert one.output_tokens_per_second == pytest.approx(OUTPUT / (FIRST + 7 * GAP), rel=0.15)
    assert four.output_tokens_per_second == pytest.approx(4 * OUTPUT / (FIRST + 7 * GAP), rel=0.15)
    assert four.total_tokens_per_second == pytest.approx(four.output_tokens_per_second * (20 + OUTPUT) / OUTPUT)


@pytest.mark.parametrize("token_ids", [True, False])
async def test_tokens_are_counted_not_chunks(token_ids: bool) -> None:
    behaviour = Behaviour(first=FIRST, gap=GAP, tokens_per_chunk=4, token_ids=token_ids)
    (level,) = (await measure(behaviour, Level(3, concurrency=3))).levels
    assert level.output_tokens == 3 * OUTPUT
    assert_delays_seen(level, gap=GAP / (OUTPUT - 1), span=GAP)


async def test_open_loop_sends_on_time_whatever_is_unanswered() -> None:
    with serving(Behaviour(first=0.5)) as fake:
        report = await run_bench(config(fake.url, Level(20, rate=100.0), warm_up=0), QuietProgress())
        (level,) = report.levels
        assert fake.most_at_once >= 15
    assert level.duration < 1.2
    assert level.send_lag < 0.1


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
    for objectives, share in ((Objectives(ttft=FIRST * 2, tpot=GAP * 2), 1.0), (Objectives(tpot=GAP / 2), 0.0)):
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
