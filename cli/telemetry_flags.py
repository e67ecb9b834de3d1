"""Flags for logs, traces and metric names, the same for every program."""

import argparse

from halfmoon.telemetry import TelemetrySettings
from halfmoon.telemetry.settings import LOG_FORMATS, METRICS_NAMES, endpoint_from_environment
from halfmoon.telemetry.tracing import endpoint_url


def add_telemetry(parser: argparse.ArgumentParser, *, names: bool = True) -> None:
    """What `telemetry_settings` reads; `names` for programs that can show vLLM's metric names."""
    group = parser.add_argument_group("telemetry")
    group.add_argument(
        "--log-format", choices=LOG_FORMATS, default="text", help="lines of text, or one JSON object a line"
    )
    group.add_argument(
        "--otlp-endpoint",
        metavar="URL",
        help="send traces to this OTLP collector over gRPC, like http://127.0.0.1:4317 "
        "(default: $OTEL_EXPORTER_OTLP_ENDPOINT, else none)",
    )
    if names:
        group.add_argument(
            "--metrics-names",
            choices=METRICS_NAMES,
            default="halfmoon",
            help="vllm shows metrics under vLLM's names too, for dashboards and autoscalers",
        )


def telemetry_settings(args: argparse.Namespace) -> TelemetrySettings:
    """From the flags of `add_telemetry`, and the environment. Raises ConfigError for an endpoint that cannot be."""
    endpoint = args.otlp_endpoint or endpoint_from_environment()
    return TelemetrySettings(
        log_format=args.log_format,
        otlp_endpoint=None if endpoint is None else endpoint_url(endpoint),
        metrics_names=getattr(args, "metrics_names", "halfmoon"),
    )


def telemetry_argv(settings: TelemetrySettings, *, names: bool = True) -> list[str]:
    """The flags that `telemetry_settings` reads as this."""
    flags = ["--log-format", settings.log_format]
    if settings.otlp_endpoint is not None:
        flags += ["--otlp-endpoint", settings.otlp_endpoint]
    return [*flags, "--metrics-names", settings.metrics_names] if names else flags
