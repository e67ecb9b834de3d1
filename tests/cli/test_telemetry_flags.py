"""Telemetry flags reach every program, and the supervisor's own lines keep the format."""

import io
import json
import signal
from dataclasses import replace

import httpx
import pytest

from cli.fleet import plan_fleet
from cli.main import build_parser
from cli.preflight.ports import free_ports
from cli.supervise.console import Console
from cli.telemetry_flags import telemetry_settings
from halfmoon.telemetry import TelemetrySettings
from tests.cli.running import running
from tests.cli.test_fleet import OPTIONS
from tests.telemetry.collector import collecting

SETTINGS = TelemetrySettings("json", "http://collector:4317", "vllm")


def test_serve_passes_its_settings_on_to_every_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://elsewhere:4317")
    for program in plan_fleet(replace(OPTIONS, telemetry=SETTINGS)):
        told = telemetry_settings(build_parser().parse_args(program.command[3:]))
        names = "halfmoon" if program.name == "router" else "vllm"
        assert told == replace(SETTINGS, metrics_names=names)


def test_workers_are_told_the_name_of_the_model_for_vllm_names() -> None:
    told = [build_parser().parse_args(program.command[3:]) for program in plan_fleet(OPTIONS)[1:-1]]
    assert {args.served_model_name for args in told} == {"tiny"}


@pytest.mark.parametrize("variable", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_the_endpoint_may_come_from_the_environment_and_is_none_by_default(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    args = build_parser().parse_args(["gateway", "--router", "127.0.0.1:1"])
    assert telemetry_settings(args) == TelemetrySettings()
    monkeypatch.setenv(variable, "http://collector:4317")
    assert telemetry_settings(args).otlp_endpoint == "http://collector:4317"


def test_in_json_every_line_of_the_console_is_an_object_and_objects_pass_unchanged() -> None:
    log = io.StringIO()
    console = Console(("router",), log=log, log_format="json")
    line = '{"time": "now", "level": "INFO", "program": "router", "message": "ready"}'
    console.say(line, "router")
    console.say("Fatal Python error: Grüße", "router")
    console.say("", "router")
    console.say("draining")
    first, *others = log.getvalue().splitlines()
    assert first == line
    told = [(found["program"], found["message"]) for found in map(json.loads, others)]
    assert told == [("router", "Fatal Python error: Grüße"), ("serve", "draining")]


def test_a_program_that_ends_has_sent_its_spans_and_written_nothing_but_json() -> None:
    gateway, router = map(str, free_ports(2))
    command = ["cli.main", "gateway", "--port", gateway, "--router", f"127.0.0.1:{router}", "--log-format", "json"]
    with collecting() as collector:
        with running([*command, "--otlp-endpoint", collector.endpoint]) as started:
            started.wait_for('"message": "serving"')
            assert httpx.get(f"http://127.0.0.1:{gateway}/v1/models").status_code == 503
            started.process.send_signal(signal.SIGTERM)
            assert started.wait() == 0
        (seen,) = collector.spans
    ended = [line for line in map(json.loads, started.output.splitlines()) if line["message"] == "request ended"]
    assert [line["trace_id"] for line in ended] == [seen.span.trace_id.hex()]


@pytest.mark.parametrize("command", [["gateway", "--router", "127.0.0.1:1"], ["serve", "--port", "0"]])
def test_an_endpoint_that_is_none_is_refused_in_one_line_before_anything_starts(command: list[str]) -> None:
    with running(["cli.main", *command, "--otlp-endpoint", "nonsense"]) as started:
        assert started.wait() == 1
        assert started.output.splitlines() == ["halfmoon: the OTLP endpoint 'nonsense' is not like http://host:4317"]
