"""What a whole server's metrics say is what the load generator saw as a client, within a tenth."""

import asyncio
from pathlib import Path

import httpx
import pytest

from bench.levels import Level
from bench.progress import QuietProgress
from bench.session import BenchConfig, run_bench
from bench.workloads import RandomPrompts
from tests.e2e.fleet import serving
from tests.gateway.test_agreement import mean, samples

REQUESTS, PROMPT, OUTPUT = 24, 100, 24
PROBE = 2
"""Tokens of the one request that the load generator sends before it measures."""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_latencies_and_tokens_agree_with_the_load_generator(tmp_path: Path, default_model: Path) -> None:
    del default_model  # it is fetched
    with serving(tmp_path) as fleet:
        config = BenchConfig(
            fleet.url,
            lambda vocabulary: RandomPrompts(PROMPT, OUTPUT, vocabulary),
            (Level(REQUESTS, concurrency=4),),
            warm_up=0,
        )
        (seen,) = asyncio.run(run_bench(config, QuietProgress())).levels
        value = samples(httpx.get(f"{fleet.url}/metrics").text)
        computed = sum(
            fleet.total(role, "halfmoon_worker_prompt_tokens_computed_total") for role in ("prefill", "decode")
        )
    assert seen.failed == 0

    def told(name: str) -> float:
        return value(f"{name}_sum") / value(f"{name}_count")

    assert mean(seen.itl) == pytest.approx(told("halfmoon_gateway_itl_seconds"), rel=0.1)
    assert mean(seen.ttft) == pytest.approx(told("halfmoon_gateway_ttft_seconds"), rel=0.1)
    assert mean(seen.end_to_end) == pytest.approx(told("halfmoon_gateway_request_seconds"), rel=0.1)
    assert value("halfmoon_gateway_ttft_seconds_count") == REQUESTS + 1
    assert value("halfmoon_gateway_itl_seconds_count") == REQUESTS * (OUTPUT - 1) + PROBE - 1
    assert value("halfmoon_gateway_tokens_total", kind="completion") == seen.output_tokens + PROBE
    assert computed == pytest.approx(REQUESTS * PROMPT, rel=0.1)
