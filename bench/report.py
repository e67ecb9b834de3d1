"""What a run found, as data."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.machine import Machine
from bench.server import ServedModel
from bench.summary import Objectives, Summary
from halfmoon.errors import ConfigError

FORMAT = 1
"""Version of the JSON; a change of meaning raises it."""


@dataclass(frozen=True, slots=True)
class Target:
    """What was measured; `dtype`, `version` and the model's facts are None where the server does not tell."""

    url: str
    model: ServedModel
    version: str | None
    dtype: str | None


@dataclass(frozen=True, slots=True)
class Report:
    """A run: what was measured, with which workload, from where, and the results of every level.

    `started` is the local time in ISO 8601; `notes` are what a reader must know to read the numbers rightly.
    """

    target: Target
    workload: str
    objectives: Objectives
    seed: int
    started: str
    machine: Machine
    notes: tuple[str, ...]
    levels: tuple[Summary, ...]
    format: int = FORMAT


def check_writable(path: Path) -> None:
    """Raises ConfigError where a file cannot be written, before a long run would find out."""
    try:
        path.open("ab").close()
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None


def write_json(report: object, path: Path) -> None:
    """The report with every field by name; times in seconds. Raises ConfigError where it cannot be written."""
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    except OSError as error:
        raise ConfigError(f"cannot write the report to {path}: {error.strerror}") from None
