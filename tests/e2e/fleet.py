"""A whole server as a user starts it: `halfmoon serve` with all its programs, and a look into each of them."""

import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

START_SECONDS = 240
STOP_SECONDS = 60
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? ([-+0-9.eE]+|NaN)$")

AT_REST = (
    "halfmoon_worker_requests_running",
    "halfmoon_worker_requests_waiting",
    "halfmoon_worker_pages_used",
    "halfmoon_worker_searches",
    "halfmoon_worker_streams_open",
    "halfmoon_worker_compilations_after_ready",
    "halfmoon_kv_host_blocks_used",
    "halfmoon_kv_handles_open",
    "halfmoon_kv_leases_active",
    "halfmoon_kv_transfers_active",
    "halfmoon_kv_store_leases",
    "halfmoon_router_requests_running",
    "halfmoon_router_requests_waiting",
    "halfmoon_router_requests_held",
)
"""Gauges that are zero when nothing is under way."""


@dataclass(frozen=True, slots=True)
class ProgramUnderTest:
    """One process of the fleet; `name` is its command, or its worker id."""

    name: str
    pid: int
    port: int
    metrics_port: int | None

    @property
    def address(self) -> str:
        """Where it serves."""
        return f"127.0.0.1:{self.port}"

    @property
    def plane_pid(self) -> int:
        """Of a worker's data plane."""
        children = psutil.Process(self.pid).children()
        return next(child.pid for child in children if "kvtransfer.plane" in child.cmdline())

    def metrics(self) -> dict[str, float]:
        """All samples, labels included in the name where there are any."""
        text = httpx.get(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5).text
        samples = (match for line in text.splitlines() if (match := _SAMPLE.match(line)))
        return {f"{m[1]}{{{m[2]}}}" if m[2] else m[1]: float(m[3]) for m in samples}


class Fleet:
    """A running server."""

    def __init__(self, port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.process = process
        self._log = log

    def log(self) -> str:
        """All that the programs have printed."""
        return self._log.read_text()

    def programs(self) -> dict[str, ProgramUnderTest]:
        """The programs by name: "gateway", "router", and the workers by id."""
        children = psutil.Process(self.process.pid).children()
        found = (_program(child) for child in children)
        return {program.name: program for program in found if program is not None}

    def program(self, name: str) -> ProgramUnderTest:
        """One of them."""
        return self.programs()[name]

    def workers(self, role: str) -> list[ProgramUnderTest]:
        """The workers of one role, by rising number."""
        return [program for name, program in sorted(self.programs().items()) if name.startswith(f"{role}-")]

    def total(self, role: str, name: str) -> float:
        """A sample summed over the workers of a role, and over all its labels."""
        samples = (program.metrics() for program in self.workers(role))
        return sum(value for each in samples for key, value in each.items() if key.split("{")[0] == name)

    def busy(self, *names: str) -> dict[str, float]:
        """The gauges that are not at rest, by program and name; of all programs or of these."""
        return {
            f"{program.name} {key}": value
            for program in self.programs().values()
            if program.metrics_port is not None and (not names or program.name in names)
            for key, value in program.metrics().items()
            if key.split("{")[0] in AT_REST and value != 0
        }

    def assert_at_rest(self, seconds: float = 5.0, *names: str) -> None:
        """Fails unless every gauge, of all programs or of these, is zero within so many seconds."""
        deadline = time.monotonic() + seconds
        while (busy := self.busy(*names)) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert busy == {}, busy


def _program(process: psutil.Process) -> ProgramUnderTest | None:
    """None for one that has just ended, too."""
    try:
        command = process.cmdline()
    except psutil.NoSuchProcess:
        return None
    if "cli.main" not in command:
        return None
    flags = dict(itertools.pairwise(command))
    name = flags.get("--worker-id", command[command.index("cli.main") + 1])
    port = flags.get("--metrics-port")
    return ProgramUnderTest(name, process.pid, int(flags["--port"]), None if port is None else int(port))


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[Fleet]:
    """`halfmoon serve` with arguments, ready; afterwards it ends by SIGTERM with status 0 and leaves no process."""
    port, log = free_port(), folder / "serve.log"
    command = [sys.executable, "-m", "cli.main", "serve", "--port", str(port), *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=dict(os.environ))
    fleet = Fleet(port, process, log)
    try:
        _wait_ready(fleet)
        yield fleet
        fleet.assert_at_rest()
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_SECONDS) == 0, fleet.log()[-4000:]
        left = [each for each in family if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
        assert left == [], left
    finally:
        process.kill()
        process.wait(STOP_SECONDS)


def _wait_ready(fleet: Fleet) -> None:
    """The gateway is ready as soon as one worker can serve; the announcement comes when all programs are."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert fleet.process.poll() is None, fleet.log()[-4000:]
        try:
            if httpx.get(f"{fleet.url}/readyz", timeout=5).status_code == 200 and "\nReady: " in fleet.log():
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"not ready in {START_SECONDS} s:\n{fleet.log()[-4000:]}")
