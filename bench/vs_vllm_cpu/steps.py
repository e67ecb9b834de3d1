"""Commands that take long, with a word on how long they have been at it."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from halfmoon.errors import UnavailableError

_NEWS_SECONDS = 15.0
_POLL_SECONDS = 0.5
_END_SECONDS = 30.0
_QUOTED_LINES = 5


def say(text: str) -> None:
    """One line of progress."""
    print(text, file=sys.stderr, flush=True)


def run_step(title: str, command: Sequence[str], log: Path, *, seconds: float) -> None:
    """Runs a command with its output in `log`.

    Raises UnavailableError with the end of the output when it fails or takes longer than `seconds`.
    """
    say(f"{title} (output: {log})")
    log.parent.mkdir(parents=True, exist_ok=True)
    free, start = shutil.disk_usage(log.parent).free, time.monotonic()
    with log.open("ab") as output, started(command, output.fileno()) as process:
        news = start
        while process.poll() is None:
            now = time.monotonic()
            if now - start > seconds:
                raise UnavailableError(f"{title}: not done after {seconds:.0f} s; see {log}")
            if now - news > _NEWS_SECONDS:
                news = now
                used = (free - shutil.disk_usage(log.parent).free) / 1e9
                say(f"  {now - start:.0f} s, {max(0.0, used):.1f} GB written")
            time.sleep(_POLL_SECONDS)
    if process.returncode:
        raise UnavailableError(f"{title} failed with status {process.returncode}:\n{tail(log)}")


def tail(log: Path) -> str:
    """The last lines of a log."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(f"  {line}" for line in lines[-_QUOTED_LINES:])


@contextmanager
def started(
    command: Sequence[str], output: int, environment: Mapping[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """A process in a group of its own, which ends with the block: asked first, then killed with all that it started.

    `output` is a file descriptor for what it prints, `environment` is added to this process's own.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.terminate()
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        say(f"process {process.pid} does not end by itself: killed")
    finally:
        _kill_group(process.pid)
        process.wait(_END_SECONDS)


def _kill_group(group: int) -> None:
    """Ends what a process left behind."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
