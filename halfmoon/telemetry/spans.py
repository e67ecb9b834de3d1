"""Spans as the programs use them. Without an endpoint (see `tracing`) every operation here costs next to nothing.

Handle ids, prompts and texts never go into a span, its events or its status.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from halfmoon.errors import HalfmoonError
from halfmoon.telemetry import conventions as names
from halfmoon.telemetry.tracing import tracer

Attributes = Mapping[str, str | int | float | Sequence[str]]
TraceMetadata = tuple[tuple[str, str], ...]

_W3C = TraceContextTextMapPropagator()
_HEADERS = frozenset(_W3C.fields)


class OpenSpan:
    """A span from now until its `end`, which counts once. Its parent is the current span unless `parent` is given."""

    def __init__(
        self,
        name: str,
        attributes: Attributes | None = None,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        parent: "OpenSpan | None" = None,
    ) -> None:
        within = None if parent is None else parent.within
        self._span: trace.Span = tracer().start_span(name, within, kind, attributes)
        self._open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end(error)

    @property
    def within(self) -> otel_context.Context:
        """The present context, with this as its current span."""
        return trace.set_span_in_context(self._span)

    @property
    def metadata(self) -> TraceMetadata | None:
        """W3C trace context for a call made within this span; None where there is no trace."""
        return _metadata(self.within)

    def set(self, attributes: Attributes) -> None:
        """Adds attributes; those of an ended span stay as they are."""
        if self._open:
            self._span.set_attributes(attributes)

    def event(self, name: str, attributes: Attributes | None = None) -> None:
        """Notes that something happened now."""
        if self._open:
            self._span.add_event(name, attributes)

    def fail(self, kind: str) -> None:
        """Marks it as failed, by an error of this kind."""
        if self._open and self._span.is_recording():
            self._span.set_attribute(names.ERROR_TYPE, kind)
            self._span.set_status(Status(StatusCode.ERROR))

    def end(self, error: BaseException | None = None) -> None:
        """Ends it, as failed when an error is given: its type is told, its message is not. Idempotent."""
        if not self._open:
            return
        if error is not None:
            self.fail(error_type(error))
        self._open = False
        self._span.end()

    @contextmanager
    def current(self) -> Iterator[None]:
        """Makes it the parent of spans that are opened inside, and of the log lines written there."""
        token = otel_context.attach(self.within)
        try:
            yield
        finally:
            otel_context.detach(token)


@contextmanager
def span(name: str, attributes: Attributes | None = None, *, kind: SpanKind = SpanKind.INTERNAL) -> Iterator[OpenSpan]:
    """A current span around a block, failed when the block raises."""
    with OpenSpan(name, attributes, kind=kind) as opened, opened.current():
        yield opened


def call_span(method: str, attributes: Attributes | None = None) -> OpenSpan:
    """The caller's side of one gRPC call; give the call its `metadata`."""
    rpc = {names.RPC_SYSTEM: names.RPC_SYSTEM_NAME, names.RPC_METHOD: method}
    return OpenSpan(method, {**rpc, **(attributes or {})}, kind=SpanKind.CLIENT)


def trace_metadata() -> TraceMetadata | None:
    """W3C trace context for a call made within the current span; None where there is no trace."""
    return _metadata(None)


def join_trace(headers: Iterable[tuple[str, str | bytes]]) -> None:
    """Makes the caller's span, if `headers` name one, current for the rest of this task. Names are in lower case."""
    joined = _extracted(headers)
    if joined is not None:
        otel_context.attach(joined)


@contextmanager
def joined_trace(headers: Iterable[tuple[str, str | bytes]]) -> Iterator[None]:
    """Like `join_trace`, for a block."""
    joined = _extracted(headers)
    if joined is None:
        yield
        return
    token = otel_context.attach(joined)
    try:
        yield
    finally:
        otel_context.detach(token)


def trace_ids() -> tuple[str, str] | None:
    """Trace id and span id of the current span in hexadecimal; None where there is no trace."""
    current = trace.get_current_span().get_span_context()
    if not current.is_valid:
        return None
    return trace.format_trace_id(current.trace_id), trace.format_span_id(current.span_id)


def error_type(error: BaseException) -> str:
    """What kind of error it is, in a word."""
    if isinstance(error, HalfmoonError):
        return error.reason.lower()
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        return "cancelled"
    return type(error).__name__


def _extracted(headers: Iterable[tuple[str, str | bytes]]) -> otel_context.Context | None:
    carried = {key: value for key, value in headers if key in _HEADERS and isinstance(value, str)}
    return _W3C.extract(carried) if carried else None


def _metadata(within: otel_context.Context | None) -> TraceMetadata | None:
    carried: dict[str, str] = {}
    _W3C.inject(carried, within)
    return tuple(carried.items()) or None
