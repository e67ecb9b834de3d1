"""One running program: its process group, its output and its end."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from cli.parent_death import PARENT_VARIABLE
from cli.supervise.program import Program

LINE_BYTES = 16_384
"""A longer line of output is passed on in pieces."""

GROUP_GRACE = 1.0
"""Seconds that processes of an ended program's own may take to end as well."""

_GROUP_INTERVAL = 0.05
_OUTPUT_GRACE = 1.0


class Child:
    """A process in a session of its own, so that a Ctrl-C at the terminal reaches it only through its supervisor."""

    def __init__(self, process: asyncio.subprocess.Process, on_line: Callable[[str], None]) -> None:
        self._process = process
        self._output = asyncio.create_task(_pump(process.stdout, on_line))

    @classmethod
    async def start(cls, program: Program, on_line: Callable[[str], None]) -> "Child":
        """Starts the program; each line that it prints goes to `on_line`. Raises OSError when it cannot run."""
        process = await asyncio.create_subprocess_exec(
            *program.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=_environment(program.environment),
            start_new_session=True,
        )
        return cls(process, on_line)

    @property
    def pid(self) -> int:
        """Process id; the process group has the same number."""
        return self._process.pid

    async def wait(self) -> int:
        """The exit status (negative: the signal that ended it) once it has ended and what it printed was passed on."""
        status = await self._process.wait()
        await self._end_group()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._output, _OUTPUT_GRACE)
        return status

    async def _end_group(self) -> None:
        """Lets what the program started notice its end and clean up, then ends what is left."""
        deadline = time.monotonic() + GROUP_GRACE
        with suppress(ProcessLookupError):
            while time.monotonic() < deadline:
                os.killpg(self.pid, 0)
                await asyncio.sleep(_GROUP_INTERVAL)
            os.killpg(self.pid, signal.SIGKILL)

    def terminate(self) -> None:
        """Asks it to drain and end."""
        with suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """Ends it at once; `wait` sees to the rest of its group, which may have files to remove."""
        with suppress(ProcessLookupError):
            self._process.kill()


def describe_status(status: int) -> str:
    """An exit status in words."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


def _environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**os.environ, **changes, PARENT_VARIABLE: str(os.getpid())}
    return {name: value for name, value in merged.items() if value is not None}


async def _pump(stream: asyncio.StreamReader | None, on_line: Callable[[str], None]) -> None:
    assert stream is not None
    rest = b""
    while chunk := await stream.read(LINE_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > LINE_BYTES:
            lines, rest = [*lines, rest], b""
        for line in lines:
            on_line(_text(line))
    if rest:
        on_line(_text(rest))


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r")
