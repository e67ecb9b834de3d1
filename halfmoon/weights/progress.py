"""How long work on weights (fetching, exporting) tells that it goes on."""

import time
from typing import Protocol, TextIO


class Progress(Protocol):
    """Receives the advance of one piece of work; called from the thread that does it."""

    def advance(self, label: str, done: int, total: int) -> None:
        """`done` of `total` bytes of the work named `label`; `done == total` ends it."""
        ...

    def note(self, message: str) -> None:
        """One line worth reading, e.g. why the work waits."""
        ...


class QuietProgress:
    """Says nothing."""

    def advance(self, label: str, done: int, total: int) -> None:
        """Ignore the advance."""

    def note(self, message: str) -> None:
        """Ignore the line."""


QUIET = QuietProgress()


class ConsoleProgress:
    """Writes to `stream`: one line that renews itself on a terminal, else a plain line every `interval` seconds."""

    def __init__(self, stream: TextIO, *, interval: float = 5.0) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._interval = 0.1 if self._live else interval
        self._label: str | None = None
        self._written_at = 0.0

    def advance(self, label: str, done: int, total: int) -> None:
        """Show the share done, at most once an interval; the first and the last call are always shown."""
        now = time.monotonic()
        first, last = label != self._label, done >= total
        if not (first or last) and now - self._written_at < self._interval:
            return
        if self._live and first:
            self._end_line()
        self._label, self._written_at = label, now
        self._write(f"{label}: {_megabytes(done)} of {_megabytes(total)} MB ({_percent(done, total)} %)")
        if last:
            self._end_line()

    def note(self, message: str) -> None:
        """Write the line as it is."""
        self._end_line()
        print(message, file=self._stream, flush=True)

    def _write(self, line: str) -> None:
        if self._live:
            print(f"\r\x1b[K{line}", end="", file=self._stream, flush=True)
        else:
            print(line, file=self._stream, flush=True)

    def _end_line(self) -> None:
        if self._live and self._label is not None:
            print(file=self._stream, flush=True)
        self._label = None


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f}"


def _percent(done: int, total: int) -> int:
    return 100 if total <= 0 else min(100, 100 * done // total)
