"""An OTLP collector for tests: real gRPC on a free port, and the spans that came, by name."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as rpc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from halfmoon.telemetry import setup_tracing

Value = str | int | float | bool | list[str]


@dataclass(frozen=True)
class Seen:
    """One span as it was exported; times in nanoseconds."""

    service: str
    span: trace_pb2.Span

    @property
    def name(self) -> str:
        return self.span.name

    @property
    def attributes(self) -> dict[str, Value]:
        return {pair.key: _value(pair.value) for pair in self.span.attributes}

    @property
    def events(self) -> dict[str, int]:
        """When each kind of event happened first."""
        return {event.name: event.time_unix_nano for event in reversed(self.span.events)}

    @property
    def begin(self) -> int:
        return self.span.start_time_unix_nano

    @property
    def end(self) -> int:
        return self.span.end_time_unix_nano

    @property
    def failed(self) -> bool:
        return self.span.status.code == trace_pb2.Status.STATUS_CODE_ERROR

    def inside(self, other: "Seen") -> bool:
        return other.begin <= self.begin <= self.end <= other.end


class Collector(rpc.TraceServiceServicer):
    """Keeps what arrives."""

    def __init__(self) -> None:
        self.endpoint = ""
        self._seen: list[Seen] = []

    def Export(  # noqa: N802 - the name of the RPC
        self, request: pb.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> pb.ExportTraceServiceResponse:
        for resource in request.resource_spans:
            service = _text(resource.resource.attributes, "service.name")
            self._seen += [Seen(service, span) for scope in resource.scope_spans for span in scope.spans]
        return pb.ExportTraceServiceResponse()

    def clear(self) -> None:
        """Forgets what has come."""
        self._seen.clear()

    @property
    def spans(self) -> list[Seen]:
        """In the order in which they began."""
        return sorted(self._seen, key=lambda seen: seen.begin)

    def trace(self, trace_id: str) -> dict[str, Seen]:
        """The spans of one trace, by their names, which must be different."""
        mine = [seen for seen in self.spans if seen.span.trace_id.hex() == trace_id]
        named = {seen.name: seen for seen in mine}
        assert len(named) == len(mine), [seen.name for seen in mine]
        return named


@contextmanager
def traced(collector: Collector) -> Iterator[None]:
    """Exports this process's spans; when the block has ended, all are at the collector, which begins anew."""
    collector.clear()
    tracing = setup_tracing("test", collector.endpoint)
    assert tracing is not None
    try:
        yield
    finally:
        tracing.close()


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens."""
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    rpc.add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    collector.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()


def _text(attributes: Iterable[KeyValue], key: str) -> str:
    return next(pair.value.string_value for pair in attributes if pair.key == key)


def _value(value: AnyValue) -> Value:
    if value.WhichOneof("value") == "array_value":
        return [each.string_value for each in value.array_value.values]
    found: Value = getattr(value, value.WhichOneof("value") or "string_value")
    return found
