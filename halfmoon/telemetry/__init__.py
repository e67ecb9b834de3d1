"""Metrics, traces and logs, the same in every program."""

from halfmoon.telemetry.histogram import Histogram, Series
from halfmoon.telemetry.logs import FieldLogger, setup_logging
from halfmoon.telemetry.metrics import Counter, Metrics, Reading, UpDown
from halfmoon.telemetry.phases import Phases
from halfmoon.telemetry.program import telemetry
from halfmoon.telemetry.server import MetricsServer, serve_metrics
from halfmoon.telemetry.settings import TelemetrySettings
from halfmoon.telemetry.spans import OpenSpan, call_span, join_trace, joined_trace, span, trace_metadata
from halfmoon.telemetry.tracing import Tracing, setup_tracing

__all__ = [
    "Counter",
    "FieldLogger",
    "Histogram",
    "Metrics",
    "MetricsServer",
    "OpenSpan",
    "Phases",
    "Reading",
    "Series",
    "TelemetrySettings",
    "Tracing",
    "UpDown",
    "call_span",
    "join_trace",
    "joined_trace",
    "serve_metrics",
    "setup_logging",
    "setup_tracing",
    "span",
    "telemetry",
    "trace_metadata",
]
