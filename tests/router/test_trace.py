"""The router's spans where nobody traced before, and where requests end otherwise than well."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.router.cluster import LONG_PROMPT, running, until
from tests.router.fakes import Script
from tests.telemetry.collector import Collector, collecting, traced

REQUEST = "text_completion tiny"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


async def test_a_client_that_does_not_trace_gets_a_trace_that_begins_at_the_router(collector: Collector) -> None:
    with traced(collector):
        async with running("p0", "d0") as cluster:
            assert (await cluster.ask(max_tokens=4, stop=["a stop string"])).error is None
    spans = {seen.name: seen for seen in collector.spans}
    assert not spans[REQUEST].span.parent_span_id
    assert len({seen.span.trace_id for seen in spans.values()}) == 1
    assert spans.keys() >= {"tokenize", "plan", "halfmoon.v1.Prefill/Prefill", "halfmoon.v1.Decode/Generate"}
    assert not any(seen.failed for seen in spans.values())
    assert not any(text in str(collector.spans) for text in ("a stop string", LONG_PROMPT[:20], "hello"))


async def test_a_refused_request_tells_the_reason(collector: Collector) -> None:
    with traced(collector):
        async with running() as cluster:
            reply = await cluster.ask()
    assert reply.error is not None
    spans = {seen.name: seen for seen in collector.spans}
    assert spans[REQUEST].attributes["error.type"] == spans["plan"].attributes["error.type"] == "unavailable"
    assert not spans["tokenize"].failed


async def test_a_request_that_is_cancelled_ends_all_its_spans(collector: Collector) -> None:
    script = Script(decode_gate=asyncio.Event())
    with traced(collector):
        async with running("p0", "d0", script=script) as cluster:
            call = cluster.call(max_tokens=4)
            await until(lambda: cluster.workers["d0"].active)
            call.cancel()
            await cluster.at_rest()
    spans = {seen.name: seen for seen in collector.spans}
    assert spans[REQUEST].attributes["error.type"] == "cancelled"
    assert spans["halfmoon.v1.Decode/Generate"].inside(spans[REQUEST])


async def test_every_plan_of_a_request_is_told(collector: Collector) -> None:
    with traced(collector):
        async with running("d0") as cluster:
            await cluster.ask(max_tokens=4)
    (plan,) = (seen for seen in collector.spans if seen.name == "plan")
    assert plan.attributes["halfmoon.plan.decode_worker"] == "d0"
    assert "halfmoon.plan.prefill_worker" not in plan.attributes
