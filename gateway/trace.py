"""The span of one HTTP request."""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.trace import SpanKind
from starlette.datastructures import Headers
from starlette.types import Scope

from gateway.record import RequestRecord
from halfmoon.telemetry import conventions as names
from halfmoon.telemetry import joined_trace, span

_SERVER_ERROR = 500


@contextmanager
def request_span(scope: Scope, record: RequestRecord) -> Iterator[None]:
    """Current until the request has ended; a child of the client's span where the client sends W3C trace context."""
    method: str = scope["method"]
    attributes = {names.HTTP_METHOD: method, names.HTTP_ROUTE: record.route, names.REQUEST_ID: record.request_id}
    with (
        joined_trace(Headers(scope=scope).items()),
        span(f"{method} {record.route}", attributes, kind=SpanKind.SERVER) as opened,
    ):
        try:
            yield
        finally:
            opened.set({names.HTTP_STATUS: record.status})
            if record.status >= _SERVER_ERROR:
                opened.fail(record.error or str(record.status))
