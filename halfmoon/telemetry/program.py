"""Logs and traces of a whole program."""

from collections.abc import Iterator
from contextlib import contextmanager

from halfmoon.telemetry.logs import setup_logging
from halfmoon.telemetry.settings import TelemetrySettings
from halfmoon.telemetry.tracing import setup_tracing


@contextmanager
def telemetry(service: str, settings: TelemetrySettings, *, name: str | None = None) -> Iterator[None]:
    """Logs and traces this process, for a block; the last spans are exported at its end, within a bound.

    `service` says which kind of program it is, `name` which of them (`service` unless given). Raises ConfigError for an
    OTLP endpoint that is none.
    """
    setup_logging(name or service, log_format=settings.log_format)
    tracing = setup_tracing(service, settings.otlp_endpoint, instance=name)
    try:
        yield
    finally:
        if tracing is not None:
            tracing.close()
