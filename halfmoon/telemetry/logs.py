"""One line a fact: time, level, program, message, what is given by `extra`, and the trace where there is one."""

import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping, MutableMapping
from typing import TextIO

from halfmoon.telemetry.spans import trace_ids

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_QUOTED = frozenset(' "=\t\r\n')


class FieldLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose every line carries fields, such as `request_id`; a call's own `extra` is added to them."""

    def __init__(self, logger: logging.Logger, **fields: object) -> None:
        super().__init__(logger, fields)

    def process(self, msg: object, kwargs: MutableMapping[str, object]) -> tuple[object, MutableMapping[str, object]]:
        """Joins the fields with those of the call."""
        given = kwargs.get("extra")
        kwargs["extra"] = {**(self.extra or {}), **(given if isinstance(given, Mapping) else {})}
        return msg, kwargs


class TextFormatter(logging.Formatter):
    """`2026-11-30T12:00:00.123 INFO router  message key=value`, in local time; a traceback follows on its own lines."""

    def __init__(self, program: str) -> None:
        super().__init__()
        self._program = program

    def format(self, record: logging.LogRecord) -> str:
        """One record as text."""
        fields = "".join(f" {key}={_shown(value)}" for key, value in record_fields(record))
        message = record.getMessage().replace("\n", " ")
        line = f"{_timestamp(record.created)} {record.levelname} {self._program}  {message}{fields}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """One object a line: `time` (RFC 3339, UTC), `level`, `program`, `message`, the fields, and `exception`."""

    def __init__(self, program: str) -> None:
        super().__init__()
        self._program = program

    def format(self, record: logging.LogRecord) -> str:
        """One record as a line of JSON; a traceback is one field."""
        line = json_line(self._program, record.levelname, record.getMessage(), at=record.created)
        fields = {key: value for key, value in record_fields(record) if key not in line}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(line | fields, ensure_ascii=False, default=str)


def json_line(program: str, level: str, message: str, *, at: float | None = None) -> dict[str, object]:
    """What every line of JSON begins with; `at` is in seconds since 1970, now unless given."""
    seconds = time.time() if at is None else at
    moment = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{int(seconds * 1000) % 1000:03d}Z"
    return {"time": moment, "level": level, "program": program, "message": message}


def record_fields(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    """What the caller gave by `extra`, in the order given, then the ids of the trace; values of None are left out."""
    for key, value in vars(record).items():
        if key not in _STANDARD and value is not None:
            yield key, value
    ids = trace_ids()
    if ids is not None:
        yield from zip(("trace_id", "span_id"), ids, strict=True)


def setup_logging(
    program: str, *, level: int = logging.INFO, stream: TextIO | None = None, log_format: str = "text"
) -> None:
    """Sends all log lines of this process to `stream` (standard error unless given); replaces earlier handlers."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(program) if log_format == "json" else TextFormatter(program))
    logging.basicConfig(level=level, handlers=[handler], force=True)


def _timestamp(seconds: float) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.localtime(seconds))}.{int(seconds * 1000) % 1000:03d}"


def _shown(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return json.dumps(text, ensure_ascii=False) if not text or not _QUOTED.isdisjoint(text) else text
