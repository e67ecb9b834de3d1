"""Which programs `halfmoon serve` runs, as data."""

import os
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from cli.environment import CORE_SHARE_VARIABLE
from cli.flags import API_KEY_VARIABLE, LOOPBACK, EngineFlags
from cli.preflight.ports import free_ports
from cli.supervise.program import Program, Readiness, Tier
from cli.telemetry_flags import telemetry_argv
from halfmoon.telemetry import TelemetrySettings

DRAIN_SHARE = 0.8
"""Of the time to drain, what each program takes; the rest is for the programs after it."""

_PORTS_PER_WORKER = 2


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What `halfmoon serve` was asked for; times in seconds. `router_port` 0 takes a free one.

    `roles` has one entry for each worker: "prefill", "decode" or "both". `core_file` is where workers on CPU agree who
    works on which cores.
    """

    model: Path
    model_name: str
    host: str
    port: int
    router_port: int
    api_key: str | None
    engine: EngineFlags
    roles: tuple[str, ...]
    split_threshold: int
    start_seconds: float
    drain_seconds: float
    core_file: Path | None = None
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)


def plan_fleet(options: ServeOptions) -> tuple[Program, ...]:
    """The router, the workers and the gateway, in the order in which they start; inner ports are drawn here."""
    ports = iter(free_ports(2 + _PORTS_PER_WORKER * len(options.roles), taken=(options.port, options.router_port)))
    router_port = options.router_port or next(ports)
    return (
        _router(options, router_port, next(ports)),
        *_workers(options, router_port, ports),
        _gateway(options, router_port),
    )


def _router(options: ServeOptions, port: int, metrics_port: int) -> Program:
    flags = [str(options.model), "--port", str(port), "--metrics-port", str(metrics_port)]
    flags += telemetry_argv(options.telemetry, names=False)
    flags += ["--served-model-name", options.model_name, "--split-threshold", str(options.split_threshold)]
    if options.engine.max_model_len is not None:
        flags += ["--max-model-len", str(options.engine.max_model_len)]
    return _program(options, "router", Tier.ROUTER, "router", flags, Readiness(LOOPBACK, port))


def _workers(options: ServeOptions, router_port: int, ports: Iterator[int]) -> Iterator[Program]:
    for index, role in enumerate(options.roles):
        name, port = f"{role}-{options.roles[:index].count(role)}", next(ports)
        command = "prefill" if role == "prefill" else "decode"
        flags = [str(options.model), "--role", role, "--port", str(port), "--metrics-port", str(next(ports))]
        flags += ["--router", f"{LOOPBACK}:{router_port}", "--worker-id", name, *options.engine.argv()]
        flags += ["--served-model-name", options.model_name, *telemetry_argv(options.telemetry)]
        program = _program(options, name, Tier.WORKER, command, flags, Readiness(LOOPBACK, port))
        yield replace(program, environment={**program.environment, **_core_share(options, index)})


def _core_share(options: ServeOptions, index: int) -> dict[str, str | None]:
    if options.core_file is None:
        return {}
    return {CORE_SHARE_VARIABLE: f"{index}:{len(options.roles)}:{options.core_file}"}


def _gateway(options: ServeOptions, router_port: int) -> Program:
    flags = ["--host", options.host, "--port", str(options.port), "--router", f"{LOOPBACK}:{router_port}"]
    flags += telemetry_argv(options.telemetry)
    readiness = Readiness(reachable(options.host), options.port, http=True)
    return _program(options, "gateway", Tier.GATEWAY, "gateway", flags, readiness)


def _program(
    options: ServeOptions, name: str, tier: Tier, command: str, flags: list[str], readiness: Readiness
) -> Program:
    return Program(
        name=name,
        tier=tier,
        command=(
            *(sys.executable, "-m", "cli.main", command),
            *flags,
            *("--drain-seconds", str(options.drain_seconds * DRAIN_SHARE)),
        ),
        readiness=readiness,
        environment={
            **_import_path(),
            API_KEY_VARIABLE: options.api_key if tier is Tier.GATEWAY else None,
        },
    )


def _import_path() -> dict[str, str | None]:
    """Makes a child import what runs here, and nothing from the current folder, whatever its folders are called."""
    source = Path(__file__).parents[1]
    path = os.environ.get("PYTHONPATH")
    if str(source) != sysconfig.get_path("purelib"):
        path = os.pathsep.join(filter(None, (str(source), path)))
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": path}


def reachable(host: str) -> str:
    """An address at which this machine reaches a server that listens on `host`."""
    return {"0.0.0.0": LOOPBACK, "": LOOPBACK, "::": "::1"}.get(host, host)
