"""Runs one server at a time, alone on the machine."""

import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.vs_vllm_cpu.contenders import Contender
from bench.vs_vllm_cpu.steps import say, started, tail
from halfmoon.errors import UnavailableError

START_SECONDS = 900.0
QUIET_SHARE = 0.1
"""Of all cores: what others may use while a server is measured."""

_WATCH_SECONDS = 2.0
_PATIENCE_SECONDS = 120.0
_NEWS_SECONDS = 30.0


@contextmanager
def serving(contender: Contender, logs: Path) -> Iterator[str]:
    """The address of the running server; it has ended, with all its processes, when the block ends.

    Raises UnavailableError when it ends before it is ready or is not ready in time.
    """
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{contender.name.replace(', ', '-').replace(' ', '-')}.log"
    command = [*contender.command, "--port", str(port)]
    with log.open("wb") as output, started(command, output.fileno(), contender.environment) as process:
        _wait_until_ready(contender, process, url, log)
        yield url


def wait_for_quiet() -> float:
    """Waits, within bounds, until others leave the machine alone; returns the share of all cores that they use."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    told = False
    while (share := _busy_share()) > QUIET_SHARE and time.monotonic() < deadline:
        if not told:
            say(f"Waiting: other programs use {share:.0%} of this machine")
            told = True
    return share


def _wait_until_ready(contender: Contender, process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    start = news = time.monotonic()
    say(f"{contender.name}: starting (output: {log})")
    while not _answers(url + contender.ready_path):
        now = time.monotonic()
        if process.poll() is not None:
            raise UnavailableError(f"{contender.name} ended with status {process.returncode}:\n{tail(log)}")
        if now - start > START_SECONDS:
            raise UnavailableError(f"{contender.name} is not ready after {START_SECONDS:.0f} s; see {log}")
        if now - news > _NEWS_SECONDS:
            news = now
            say(f"  {now - start:.0f} s")
        time.sleep(0.5)
    say(f"{contender.name}: ready after {time.monotonic() - start:.0f} s")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2.0) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _busy_share() -> float:
    """Share of all cores that was used in the next seconds."""
    before = _processor_times()
    time.sleep(_WATCH_SECONDS)
    busy, total = (after - earlier for after, earlier in zip(_processor_times(), before, strict=True))
    return busy / max(1, total)


def _processor_times() -> tuple[int, int]:
    """Ticks (busy, all) of all cores since boot."""
    with Path("/proc/stat").open(encoding="ascii") as lines:
        ticks = [int(value) for value in lines.readline().split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)
