"""One request as a collector sees it: through gateway, router, prefill, transfer and decode."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise

import httpx
import pytest

from halfmoon.runner.runner import Runner
from halfmoon.telemetry import TelemetrySettings
from tests.telemetry.collector import Collector, Seen, collecting, traced
from tests.tiers.fleet import MODEL, http_front
from tests.tiers.workers import worker

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
PROMPT = "A prompt that is written here and must be found in no span." * 2
ANSWER = {"max_tokens": 6, "ignore_eos": True, "logit_bias": {"65": 100}, "temperature": 0}

HTTP, REQUEST = "POST /v1/completions", f"text_completion {MODEL}"
TO_ROUTER, TO_PREFILL, TO_DECODE = (
    "halfmoon.v1.Router/Generate",
    "halfmoon.v1.Prefill/Prefill",
    "halfmoon.v1.Decode/Generate",
)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


@asynccontextmanager
async def traced_fleet(runners: tuple[Runner, Runner], collector: Collector) -> AsyncIterator[httpx.AsyncClient]:
    """When it has ended, all its spans are at the collector."""
    settings = TelemetrySettings(otlp_endpoint=collector.endpoint)
    with traced(collector):
        async with (
            worker(runners[0], role="prefill", telemetry=settings) as prefill,
            worker(runners[1], role="decode", telemetry=settings) as decode,
            http_front(runners[0].config.geometry, p0=prefill, d0=decode) as front,
        ):
            yield front.http


async def ask(http: httpx.AsyncClient, flags: str = "01") -> None:
    body = {"prompt": PROMPT, **ANSWER}
    response = await http.post(
        "/v1/completions",
        json=body,
        headers={"traceparent": f"00-{TRACE}-{CALLER}-{flags}", "x-request-id": "asked"},
    )
    assert response.status_code == 200, response.text
    assert response.json()["usage"]["completion_tokens"] == 6


async def test_one_request_is_one_trace_from_http_to_decode(
    runners: tuple[Runner, Runner], collector: Collector
) -> None:
    async with traced_fleet(runners, collector) as http:
        await ask(http)
    spans = collector.trace(TRACE)
    assert _parents(spans) == {
        HTTP: CALLER,
        TO_ROUTER: HTTP,
        REQUEST: TO_ROUTER,
        "tokenize": REQUEST,
        "plan": REQUEST,
        TO_PREFILL: REQUEST,
        "prefill": TO_PREFILL,
        "offer": "prefill",
        "prefill queue": "prefill",
        "compute": "prefill",
        "publish": "prefill",
        TO_DECODE: REQUEST,
        "decode": TO_DECODE,
        "decode queue": "decode",
        "wait for KV": "decode",
        "transfer": "wait for KV",
        "generate": "decode",
    }
    _check_times(spans)
    _check_facts(spans, block_bytes=runners[0].config.geometry.block_bytes)
    assert not any(seen.failed for seen in spans.values())
    assert PROMPT[:20] not in str(collector.spans)
    assert spans["transfer"].service == "halfmoon-data-plane"


async def test_a_caller_that_does_not_sample_gets_no_spans(
    runners: tuple[Runner, Runner], collector: Collector
) -> None:
    async with traced_fleet(runners, collector) as http:
        await ask(http, flags="00")
    assert not collector.spans


def _parents(spans: dict[str, Seen]) -> dict[str, str]:
    names = {seen.span.span_id: name for name, seen in spans.items()}
    return {name: names.get(seen.span.parent_span_id, seen.span.parent_span_id.hex()) for name, seen in spans.items()}


def _check_times(spans: dict[str, Seen]) -> None:
    for name, parent in _parents(spans).items():
        if parent != CALLER:
            assert spans[name].inside(spans[parent]), f"{name} is not inside {parent}"
    order = ["tokenize", "plan", "offer", "prefill queue", "compute"]
    for before, after in pairwise(order):
        assert spans[before].end <= spans[after].begin
    assert spans["decode queue"].end <= spans["wait for KV"].begin
    assert spans["wait for KV"].end <= spans["generate"].begin
    assert spans["compute"].end <= spans["generate"].events["first token"]
    assert spans["compute"].begin <= spans["compute"].events["chunk"] <= spans["compute"].end
    assert spans["publish"].events["published"] <= spans["publish"].end


def _check_facts(spans: dict[str, Seen], *, block_bytes: int) -> None:
    pages = -(-len(PROMPT) // 16)
    transfer = spans["transfer"].attributes
    assert transfer["halfmoon.kv.pages"] == pages
    assert transfer["halfmoon.kv.bytes"] == pages * block_bytes
    assert transfer["halfmoon.kv.transport"] == "shm"
    assert spans[HTTP].attributes["http.response.status_code"] == 200
    assert spans["plan"].attributes["halfmoon.plan.prefill_worker"] == "p0"
    assert spans["decode"].attributes["gen_ai.usage.output_tokens"] == 5
    request = spans[REQUEST].attributes
    assert request["gen_ai.operation.name"] == "text_completion"
    assert request["gen_ai.request.model"] == MODEL
    assert (request["gen_ai.usage.input_tokens"], request["gen_ai.usage.output_tokens"]) == (len(PROMPT), 6)
    assert request["gen_ai.response.finish_reasons"] == ["length"]
    assert {spans[name].attributes["halfmoon.request.id"] for name in (HTTP, REQUEST, "prefill", "decode")} == {"asked"}
