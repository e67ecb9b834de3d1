"""What a whole server tells: one trace over all its processes, JSON logs, and metrics under vLLM's names."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.fleet import Fleet, serving
from tests.telemetry.collector import Collector, collecting

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
BODY = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 8, "temperature": 0}
LABELS = '{engine="0",model_name="SmolLM2-135M-Instruct"}'

SERVICES = {
    "halfmoon-gateway": {"POST /v1/chat/completions", "halfmoon.v1.Router/Generate"},
    "halfmoon-router": {
        "chat SmolLM2-135M-Instruct",
        "tokenize",
        "plan",
        "halfmoon.v1.Prefill/Prefill",
        "halfmoon.v1.Decode/Generate",
    },
    "halfmoon-prefill": {"prefill", "offer", "prefill queue", "compute", "publish"},
    "halfmoon-decode": {"decode", "decode queue", "wait for KV", "generate"},
    "halfmoon-data-plane": {"transfer"},
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory, default_model: Path, collector: Collector) -> Fleet:
    """A server that has answered one request and ended."""
    del default_model  # it is fetched
    flags = ("--split-threshold", "0", "--log-format", "json", "--metrics-names", "vllm")
    with serving(tmp_path_factory.mktemp("traced"), *flags, "--otlp-endpoint", collector.endpoint) as fleet:
        headers = {"traceparent": f"00-{TRACE}-{CALLER}-01", "x-request-id": "asked"}
        answer = httpx.post(f"{fleet.url}/v1/chat/completions", json=BODY, headers=headers, timeout=60)
        assert answer.status_code == 200
        (decode,) = fleet.workers("decode")
        gateway = httpx.get(f"{fleet.url}/metrics").text
        worker = httpx.get(f"http://127.0.0.1:{decode.metrics_port}/metrics").text
        assert f"vllm:generation_tokens_total{LABELS} 8.0" in gateway
        assert f"vllm:kv_cache_usage_perc{LABELS}" in worker
    return fleet


def test_one_trace_goes_through_every_process(ended: Fleet, collector: Collector) -> None:
    spans = collector.trace(TRACE)
    found: dict[str, set[str]] = {}
    for seen in spans.values():
        found.setdefault(seen.service, set()).add(seen.name)
    assert found == SERVICES
    parents = {seen.span.span_id: seen for seen in spans.values()}
    for seen in spans.values():
        if seen.span.parent_span_id.hex() != CALLER:
            assert seen.inside(parents[seen.span.parent_span_id]), seen.name


def test_every_line_is_an_object_but_for_the_announcement(ended: Fleet) -> None:
    lines = ended.log().splitlines()
    texts = [index for index, line in enumerate(lines) if not line.startswith("{")]
    assert texts == list(range(texts[0], texts[-1] + 1))
    objects = [json.loads(line) for line in lines if line.startswith("{")]
    assert {"serve", "gateway", "router", "prefill-0", "decode-0"} <= {line["program"] for line in objects}
    told = {line["program"]: line for line in objects if line.get("request_id") == "asked"}
    assert told.keys() >= {"gateway", "router"}
    assert {line["trace_id"] for line in told.values()} == {TRACE}
