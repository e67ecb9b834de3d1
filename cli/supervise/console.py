"""What the supervisor prints: its own lines and those of its programs, each with the name of who says it."""

import json
import sys
from typing import TextIO

from halfmoon.telemetry.logs import json_line


class Console:
    """Writes whole lines; a terminal or pipe that has gone away does not stop the supervisor."""

    def __init__(
        self,
        names: tuple[str, ...] = (),
        *,
        log: TextIO | None = None,
        out: TextIO | None = None,
        log_format: str = "text",
    ) -> None:
        """`names` are the programs' (for alignment); lines go to `log`, in `log_format`, results to `out`."""
        self._json = log_format == "json"
        self._log = log or sys.stderr
        self._out = out or sys.stdout
        self._width = max(map(len, (*names, "serve")))

    def say(self, message: str, name: str = "serve") -> None:
        """One line of `name`; in JSON, what is an object already stays as it is."""
        if not self._json:
            self._print(f"{name:<{self._width}} | {message}", self._log)
        elif message.startswith("{"):
            self._print(message, self._log)
        elif message.strip():
            self._print(json.dumps(json_line(name, "INFO", message), ensure_ascii=False), self._log)

    def announce(self, text: str) -> None:
        """What the user waits for, as it is."""
        self._print(text, self._out)

    @staticmethod
    def _print(text: str, stream: TextIO) -> None:
        try:
            print(text, file=stream, flush=True)
        except (OSError, ValueError):
            return
