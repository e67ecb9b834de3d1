"""What a program is told about its telemetry."""

import os
from dataclasses import dataclass

LOG_FORMATS = ("text", "json")
METRICS_NAMES = ("halfmoon", "vllm")

_ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """`log_format` is one of LOG_FORMATS. `otlp_endpoint` is where spans go, None for nowhere.

    `metrics_names` is one of METRICS_NAMES: "vllm" shows vLLM's names beside Halfmoon's own.
    """

    log_format: str = "text"
    otlp_endpoint: str | None = None
    metrics_names: str = "halfmoon"


def endpoint_from_environment() -> str | None:
    """The OTLP endpoint that OpenTelemetry's variables name; None where they name none."""
    return next((value for name in _ENDPOINT_VARIABLES if (value := os.environ.get(name))), None)
