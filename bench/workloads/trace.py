"""Requests of a recorded trace: their times, lengths and shared prefixes."""

import random
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Self

import msgspec

from bench.workloads.request import Request
from bench.workloads.vocabulary import random_ids
from halfmoon.errors import ConfigError

BLOCK_TOKENS = 512
"""Prompt tokens that one id of `hash_ids` stands for."""


class Row(msgspec.Struct, frozen=True):
    """A recorded request: `timestamp` in milliseconds, lengths in tokens, an id for each block of the prompt."""

    timestamp: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """Rows in the order of their times. `time_scale` multiplies times, `length_scale` both lengths and blocks."""

    name: str
    rows: tuple[Row, ...]
    vocab_size: int
    time_scale: float = 1.0
    length_scale: float = 1.0
    seed: int = 0

    @classmethod
    def read(
        cls,
        path: Path,
        *,
        vocab_size: int,
        max_requests: int | None = None,
        time_scale: float = 1.0,
        length_scale: float = 1.0,
        seed: int = 0,
    ) -> Self:
        """The first `max_requests` rows of a file of JSON lines. Raises ConfigError for a file that cannot be used."""
        try:
            with path.open(encoding="utf-8") as lines:
                numbered = islice(
                    ((number, line) for number, line in enumerate(lines, 1) if line.strip()), max_requests
                )
                rows = [_parse(line, f"{path}, line {number}") for number, line in numbered]
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the trace {path}: {error}") from None
        if not rows:
            raise ConfigError(f"the trace {path} has no requests")
        rows.sort(key=lambda row: row.timestamp)
        return cls(f"trace {path.name}", tuple(rows), vocab_size, time_scale, length_scale, seed)

    @property
    def size(self) -> int | None:
        """Rows."""
        return len(self.rows)

    def requests(self, series: int, count: int) -> list[Request]:
        """The first `count` rows, of every series alike: a trace's shared prefixes are what it is for."""
        start = self.rows[0].timestamp
        return [
            Request(
                self.prompt(row),
                self._scaled(row.output_length),
                exact=True,
                at=(row.timestamp - start) * self.time_scale / 1e3,
            )
            for row in self.rows[:count]
        ]

    def prompt(self, row: Row) -> list[int]:
        """Token ids: equal block ids at the start of two rows give equal tokens."""
        ids: list[int] = []
        for index, block in enumerate(row.hash_ids):
            end = min(self._scaled((index + 1) * BLOCK_TOKENS), self._scaled(row.input_length))
            source = random.Random(f"{self.seed}/{block}")
            ids += random_ids(source, end - len(ids), self.vocab_size)
        return ids

    def _scaled(self, tokens: int) -> int:
        return max(1, round(tokens * self.length_scale))


def _parse(line: str, place: str) -> Row:
    try:
        row = msgspec.json.decode(line, type=Row)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{place} is not a trace's row: {error}") from None
    blocks = -(-row.input_length // BLOCK_TOKENS)
    if row.input_length < 1 or row.output_length < 1 or len(row.hash_ids) != blocks:
        raise ConfigError(f"{place}: {row.input_length} prompt tokens have {blocks} blocks, not {len(row.hash_ids)}")
    return row
