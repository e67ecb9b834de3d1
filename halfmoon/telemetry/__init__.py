"""Metrics and logs, the same in every program."""

from halfmoon.telemetry.logs import FieldLogger, setup_logging
from halfmoon.telemetry.metrics import Counter, Histogram, Metrics, Reading, UpDown
from halfmoon.telemetry.server import MetricsServer, serve_metrics

__all__ = [
    "Counter",
    "FieldLogger",
    "Histogram",
    "Metrics",
    "MetricsServer",
    "Reading",
    "UpDown",
    "serve_metrics",
    "setup_logging",
]
