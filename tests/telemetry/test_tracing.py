"""Spans reach a collector, tell no secrets, and cost next to nothing where there is none."""

import logging
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from halfmoon.errors import ConfigError, InvalidRequestError
from halfmoon.telemetry import OpenSpan, call_span, joined_trace, setup_tracing, span, trace_metadata
from halfmoon.telemetry.spans import trace_ids
from halfmoon.telemetry.tracing import endpoint_url
from tests.telemetry.collector import Collector, collecting, traced

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = (("traceparent", f"00-{TRACE}-{CALLER}-01"),)


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


def exported(collector: Collector, work: Callable[[], None]) -> Collector:
    """The collector once the spans of `work` are there."""
    with traced(collector):
        work()
    return collector


def test_a_span_is_the_child_of_the_current_one_and_of_the_parent_that_is_given(collector: Collector) -> None:
    def work() -> None:
        with span("outer") as outer:
            with OpenSpan("inner"):
                pass
            with OpenSpan("aside"), OpenSpan("given", parent=outer):
                pass

    seen = {each.name: each for each in exported(collector, work).spans}
    outer = seen["outer"].span.span_id
    assert [seen[name].span.parent_span_id for name in ("inner", "aside", "given")] == [outer] * 3
    assert seen["outer"].service == "halfmoon-test"


def test_a_call_continues_the_trace_of_its_caller(collector: Collector) -> None:
    def work() -> None:
        with joined_trace(TRACEPARENT):
            call = call_span("service/Method")
            metadata = dict(call.metadata or ())
            assert metadata["traceparent"].startswith(f"00-{TRACE}-")
            assert CALLER not in metadata["traceparent"]
            call.end()
        assert trace_metadata() is None

    (seen,) = exported(collector, work).spans
    assert (seen.span.trace_id.hex(), seen.span.parent_span_id.hex()) == (TRACE, CALLER)


def test_a_failed_span_tells_the_kind_of_error_and_not_its_message(collector: Collector) -> None:
    def work() -> None:
        with pytest.raises(InvalidRequestError), span("refused"):
            raise InvalidRequestError("the prompt 'my secret' is bad")
        with pytest.raises(KeyError), span("broken"):
            raise KeyError("my secret")

    seen = {each.name: each for each in exported(collector, work).spans}
    assert seen["refused"].attributes == {"error.type": "invalid_request"}
    assert seen["broken"].attributes == {"error.type": "KeyError"}
    assert all(each.failed for each in seen.values())
    assert "secret" not in str(collector.spans)


def test_a_span_ends_once(collector: Collector) -> None:
    def work() -> None:
        opened = OpenSpan("once")
        opened.end()
        opened.set({"late": 1})
        opened.event("late")
        opened.end(KeyError())

    (seen,) = exported(collector, work).spans
    assert not seen.attributes
    assert not seen.events
    assert not seen.failed


def test_without_an_endpoint_a_trace_is_passed_on_and_spans_cost_little() -> None:
    assert setup_tracing("test", None) is None
    with joined_trace(TRACEPARENT), span("off"):
        assert trace_ids() == (TRACE, CALLER)
        assert dict(trace_metadata() or ()) == dict(TRACEPARENT)
    begin = time.process_time()
    for _ in range(2000):
        opened = OpenSpan("off")
        opened.event("token")
        opened.end()
    assert (time.process_time() - begin) / 2000 < 20e-6


@pytest.mark.parametrize("endpoint", ["", "http://", "ftp://host:1", "host", "http://host:port", "http://host:99999"])
def test_an_endpoint_that_is_none_is_refused_in_a_line_that_names_it(endpoint: str) -> None:
    with pytest.raises(ConfigError, match=f"'{endpoint}' is not like http://host:4317"):
        setup_tracing("test", endpoint)


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("localhost:4317", "http://localhost:4317"),
        ("http://[::1]:4317", "http://[::1]:4317"),
        ("https://collector.example", "https://collector.example"),
    ],
)
def test_an_endpoint_without_a_scheme_is_plain(endpoint: str, url: str) -> None:
    assert endpoint_url(endpoint) == url


def test_a_collector_that_does_not_answer_delays_the_end_no_longer_than_the_bound(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        tracing = setup_tracing("test", f"127.0.0.1:{deaf.getsockname()[1]}")
        assert tracing is not None
        with span("lost"):
            pass
        begin = time.monotonic()
        with caplog.at_level(logging.WARNING):
            tracing.close(0.2)
        assert time.monotonic() - begin < 2.0
    assert "not exported in time" in caplog.text
