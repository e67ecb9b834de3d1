"""What the gateway's metrics say is what the load generator saw as a client, within a tenth."""

from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bench.arithmetic import Distribution
from bench.levels import Level
from bench.progress import QuietProgress
from bench.session import BenchConfig, run_bench
from bench.workloads import RandomPrompts
from tests.gateway.test_with_router import gateway_for
from tests.router.cluster import running
from tests.router.fakes import Script

REQUESTS, PROMPT, OUTPUT = 8, 40, 12
PROBE = 2
"""Tokens of the one request that the load generator sends before it measures."""


async def test_latencies_and_tokens_agree_with_the_load_generator() -> None:
    script = Script(["y" * OUTPUT], pace=0.03, prefill_seconds=0.2)
    async with running("p0", "d0", script=script) as cluster, gateway_for(cluster) as http:
        config = BenchConfig(
            str(http.base_url),
            lambda vocabulary: RandomPrompts(PROMPT, OUTPUT, min(vocabulary, 256)),
            (Level(REQUESTS, concurrency=2),),
            warm_up=0,
        )
        (seen,) = (await run_bench(config, QuietProgress())).levels
        value = samples((await http.get("/metrics")).text)
    assert seen.failed == 0

    def told(name: str) -> float:
        return value(f"{name}_sum") / value(f"{name}_count")

    assert mean(seen.itl) == pytest.approx(told("halfmoon_gateway_itl_seconds"), rel=0.1)
    assert mean(seen.ttft) == pytest.approx(told("halfmoon_gateway_ttft_seconds"), rel=0.1)
    assert mean(seen.end_to_end) == pytest.approx(told("halfmoon_gateway_request_seconds"), rel=0.1)
    assert value("halfmoon_gateway_ttft_seconds_count") == REQUESTS + 1
    assert value("halfmoon_gateway_itl_seconds_count") == REQUESTS * (OUTPUT - 1) + PROBE - 1
    assert value("halfmoon_gateway_tokens_total", kind="completion") == seen.output_tokens + PROBE


def mean(distribution: Distribution | None) -> float:
    assert distribution is not None
    return distribution.mean


def samples(page: str) -> Callable[..., float]:
    """The value of a sample by its name and some of its labels; the generation route unless others are given."""
    found = [sample for family in text_string_to_metric_families(page) for sample in family.samples]

    def value(name: str, **labels: str) -> float:
        wanted = {"route": "/v1/completions"} if name.startswith("halfmoon_gateway_request_seconds") else labels
        (one,) = (sample for sample in found if sample.name == name and wanted.items() <= sample.labels.items())
        return one.value

    return value
