"""Moving a long prompt's KV while it is computed: what decode holds when prefill ends, and what the client sees."""

import asyncio
import itertools
import os
import statistics
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from halfmoon.telemetry import conventions as names
from tests.e2e.clients import body, fresh_prompt, streaming
from tests.e2e.fleet import Fleet, serving
from tests.e2e.small import PAGE_SIZE
from tests.telemetry.collector import Collector, Seen, collecting

PROMPT, OUTPUT, RUNS = 4000, 48, 5
ITL_SHARE, GAP_SECONDS = 1.5, 0.030
EXPORTED = 8.0
"""Seconds after which a span is at the collector, whichever program it is from."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


@pytest.fixture(scope="module", params=["shm", "tcp"])
def fleet(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, default_model: Path, collector: Collector
) -> Iterator[Fleet]:
    """The default model, split, over one transport."""
    del default_model  # it is fetched
    flags = ("--split-threshold", "0", "--transports", request.param, "--otlp-endpoint", collector.endpoint)
    with serving(tmp_path_factory.mktemp(request.param), *flags) as fleet:
        yield fleet


async def test_decode_holds_all_but_the_last_chunk_when_prefill_ends(fleet: Fleet, collector: Collector) -> None:
    trace = os.urandom(16).hex()
    headers = {"traceparent": f"00-{trace}-{os.urandom(8).hex()}-01"}
    async with httpx.AsyncClient(base_url=fleet.url, headers=headers) as client:
        response = await client.post("/v1/completions", json=body(fresh_prompt(PROMPT), 4), timeout=120)
        assert response.status_code == 200
    await asyncio.sleep(EXPORTED)
    spans = collector.trace(trace)
    *_, before_last, last = _values(spans["compute"], "chunk", names.COMPUTED_TOKENS)
    assert last[1] == PROMPT
    held = [time for time, _ in _values(spans["wait for KV"], "page", names.KV_PAGES) if time <= spans["compute"].end]
    print(f"decode held {len(held)} pages when prefill ended; {before_last[1] // PAGE_SIZE} were complete before")
    assert len(held) >= before_last[1] // PAGE_SIZE


def _values(seen: Seen, event: str, attribute: str) -> list[tuple[int, int]]:
    """When each such event happened, in nanoseconds, and what it says."""
    found = [each for each in seen.span.events if each.name == event]
    return [
        (each.time_unix_nano, next(pair.value.int_value for pair in each.attributes if pair.key == attribute))
        for each in found
    ]


async def test_the_second_token_follows_the_first_almost_as_the_others_do(fleet: Fleet) -> None:
    gaps, steps = [], []
    async with httpx.AsyncClient(base_url=fleet.url) as client:
        for _ in range(RUNS):
            async with streaming(client, body(fresh_prompt(PROMPT), OUTPUT)) as pieces:
                async for streamed in pieces:
                    times = streamed.times
            between = [after - before for before, after in itertools.pairwise(times)]
            gaps.append(between[0])
            steps.append(statistics.median(between[1:]))
            print(
                f"first to second token: {gaps[-1] * 1e3:.1f} ms; median between later ones: {steps[-1] * 1e3:.1f} ms"
            )
    assert statistics.median(gaps) <= ITL_SHARE * statistics.median(steps) + GAP_SECONDS
