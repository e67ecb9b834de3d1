"""A command as a process of its own, with deadlines on everything that is awaited of it."""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0


class Running:
    """A started process whose output (both streams) is collected as it comes."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return "".join(self._lines)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.append(line)

    def wait_for(self, pattern: str, *, times: int = 1) -> list[str]:
        """The matches of `pattern` in the output, once there are `times` of them."""
        until(lambda: len(re.findall(pattern, self.output)) >= times, f"{pattern!r} in:\n", lambda: self.output)
        return re.findall(pattern, self.output)

    def wait(self) -> int:
        """The exit status, once it has ended and its output was read."""
        status = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return status


@contextmanager
def running(command: Sequence[str], **environment: str) -> Iterator[Running]:
    """`python -m` with these arguments, in the project's folder; ended with all of its descendants."""
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    family = psutil.Process(process.pid)
    try:
        yield Running(process)
    finally:
        if process.poll() is None:
            for member in [*family.children(recursive=True), family]:
                member.kill()
        process.wait(PATIENCE)
        assert process.stdout is not None
        process.stdout.close()


def until(condition: Callable[[], bool], what: str, details: Callable[[], str] = str) -> None:
    """Waits for a condition; fails with `what` and the details when it does not come true in time."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE} s for {what}{details()}"
        time.sleep(0.02)
