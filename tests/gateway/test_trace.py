"""The gateway's spans."""

from collections.abc import Iterator

import pytest

from tests.gateway.fakes import serving
from tests.telemetry.collector import Collector, collecting, traced

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


async def test_each_prompt_of_a_list_is_a_call_of_its_own(collector: Collector) -> None:
    with traced(collector):
        async with serving() as served:
            response = await served.http.post("/v1/completions", json={"prompt": ["a", "b"], "max_tokens": 2})
            assert response.status_code == 200
    (request,) = (seen for seen in collector.spans if seen.name == "POST /v1/completions")
    calls = [seen for seen in collector.spans if seen.name == "halfmoon.v1.Router/Generate"]
    assert len(calls) == 2
    assert all(call.inside(request) and call.span.parent_span_id == request.span.span_id for call in calls)
    assert not any(seen.failed for seen in collector.spans)


async def test_a_client_error_is_no_failure_of_the_span_and_probes_have_none(collector: Collector) -> None:
    with traced(collector):
        async with serving() as served:
            assert (await served.http.post("/v1/completions", content=b"{")).status_code == 400
            await served.http.get("/livez")
            await served.http.get("/metrics")
    (seen,) = collector.spans
    assert seen.attributes["http.response.status_code"] == 400
    assert not seen.failed


@pytest.mark.parametrize("header", [f"00-{TRACE}-{CALLER}", "nonsense", f"00-{'0' * 32}-{CALLER}-01"])
async def test_a_traceparent_that_is_none_begins_a_new_trace(collector: Collector, header: str) -> None:
    with traced(collector):
        async with serving() as served:
            await served.http.get("/v1/other", headers={"traceparent": header})
    (seen,) = collector.spans
    assert not seen.span.parent_span_id
    assert seen.span.trace_id.hex() not in {TRACE, "0" * 32}


async def test_a_server_error_is_a_failure_and_tells_its_reason(collector: Collector) -> None:
    with traced(collector):
        async with serving(routers=("127.0.0.1:1",)) as served:
            response = await served.http.post("/v1/completions", json={"prompt": "a"})
            assert response.status_code == 503
    failures = {seen.name: seen.attributes["error.type"] for seen in collector.spans if seen.failed}
    assert failures == {"POST /v1/completions": "unavailable", "halfmoon.v1.Router/Generate": "unavailable"}
