"""How far a run has got, on a terminal or in a log."""

import time
from typing import Protocol, TextIO

_BAR = 30
_RENEW = "\r\x1b[K"


class Progress(Protocol):
    """Is told of the run's levels one after another."""

    def begin(self, label: str, total: int) -> None:
        """A level of `total` requests begins."""
        ...

    def advance(self, failed: bool) -> None:
        """One more request has ended."""
        ...

    def end(self, result: str) -> None:
        """The level has ended; `result` sums it up."""
        ...


class QuietProgress:
    """Says nothing."""

    def begin(self, label: str, total: int) -> None:
        """Ignore it."""

    def advance(self, failed: bool) -> None:
        """Ignore it."""

    def end(self, result: str) -> None:
        """Ignore it."""


class ConsoleProgress:
    """A bar that renews itself on a terminal, else a plain line every `interval` seconds and one for each level.

    `title` stands in place of the levels' own names.
    """

    def __init__(self, stream: TextIO, *, interval: float = 10.0, title: str | None = None) -> None:
        self._stream = stream
        self._title = title
        self._live = stream.isatty()
        self._interval = 0.1 if self._live else interval
        self._label, self._total, self._done, self._failed = "", 0, 0, 0
        self._began = self._written = 0.0

    def begin(self, label: str, total: int) -> None:
        """Starts the level's bar."""
        self._label, self._total, self._done, self._failed = self._title or label, total, 0, 0
        self._began = self._written = time.monotonic()
        if self._live:
            self._draw()

    def advance(self, failed: bool) -> None:
        """Draws at most once an interval."""
        self._done += 1
        self._failed += failed
        now = time.monotonic()
        if now - self._written >= self._interval:
            self._written = now
            self._draw()

    def end(self, result: str) -> None:
        """Replaces the bar with the result."""
        start = _RENEW if self._live else ""
        print(f"{start}{self._label}: {result}", file=self._stream, flush=True)

    def _draw(self) -> None:
        text = f"{self._label}: {self._done} of {self._total} requests, {time.monotonic() - self._began:.0f} s"
        if self._failed:
            text += f", {self._failed} failed"
        if not self._live:
            print(text, file=self._stream, flush=True)
            return
        filled = _BAR * self._done // max(1, self._total)
        print(f"{_RENEW}[{'#' * filled}{'.' * (_BAR - filled)}] {text}", end="", file=self._stream, flush=True)
