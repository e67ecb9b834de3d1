"""Where this process's spans go: by OTLP over gRPC to a collector where an endpoint is set, else nowhere."""

import importlib.metadata
import logging
import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from opentelemetry.trace import NoOpTracer, Tracer

from halfmoon.errors import ConfigError
from halfmoon.telemetry import conventions as names

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

_log = logging.getLogger(__name__)

FLUSH_SECONDS = 2.0
"""What the last export may take at a program's end."""

_EXPORT_SECONDS = 5.0
_EXPORT_EVERY_MS = 1000.0

_off: Tracer = NoOpTracer()
_tracer: Tracer = _off


class Tracing:
    """Owns the exporter of this process. One at a time; `close` it."""

    def __init__(self, provider: "TracerProvider", exporter: "SpanExporter") -> None:
        self._provider = provider
        self._exporter = exporter

    def close(self, seconds: float = FLUSH_SECONDS) -> None:
        """Exports what has ended, for at most `seconds`; spans are recorded no more."""
        global _tracer
        _tracer = _off
        flush = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        flush.start()
        flush.join(seconds)
        if flush.is_alive():
            _log.warning("the last spans were not exported in time", extra={"seconds": seconds})
            self._exporter.shutdown()


def setup_tracing(program: str, endpoint: str | None, *, instance: str | None = None) -> Tracing | None:
    """Exports the spans of this process as service `halfmoon-PROGRAM`, in the background; None without an endpoint.

    `endpoint` is `http://host:port`, `https://host`, or `host:port` for the first. Raises ConfigError for others.
    """
    global _tracer
    if endpoint is None:
        return None
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    exporter = OTLPSpanExporter(endpoint=endpoint_url(endpoint), timeout=_EXPORT_SECONDS)
    resource = {
        names.SERVICE_NAME: f"halfmoon-{program}",
        names.SERVICE_VERSION: importlib.metadata.version("halfmoon"),
        names.SERVICE_INSTANCE_ID: instance or program,
    }
    provider = TracerProvider(resource=Resource.create(resource), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=_EXPORT_EVERY_MS))
    _tracer = provider.get_tracer("halfmoon", schema_url=names.SCHEMA_URL)
    return Tracing(provider, exporter)


def tracer() -> Tracer:
    """What makes spans now: without an endpoint they record nothing, but pass on a caller's trace."""
    return _tracer


def endpoint_url(endpoint: str) -> str:
    """The endpoint as a URL. Raises ConfigError, in a line that names it, for one that cannot be."""
    url = endpoint if "://" in endpoint else f"http://{endpoint}"
    parts = urlsplit(url)
    try:
        usable = bool(parts.hostname) and (parts.scheme == "https" or (parts.scheme == "http" and parts.port))
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"the OTLP endpoint {endpoint!r} is not like http://host:4317", param="otlp_endpoint")
    return url
