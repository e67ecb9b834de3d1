"""Prompts from a file."""

from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Self

import msgspec

from bench.workloads.request import Request
from halfmoon.errors import ConfigError


class _Line(msgspec.Struct):
    prompt: str | list[int]
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class PromptFile:
    """The prompts of a file in their order, from the start again when more are asked for."""

    name: str
    prompts: tuple[Request, ...]

    @classmethod
    def read(cls, path: Path, *, max_tokens: int) -> Self:
        """JSON lines with `prompt` (text or ids) and perhaps `max_tokens`, or a plain prompt a line.

        `max_tokens` is for prompts that do not say. Raises ConfigError for a file that cannot be used.
        """
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the prompts in {path}: {error}") from None
        as_json = path.suffix in {".jsonl", ".json"}
        numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
        if not numbered:
            raise ConfigError(f"{path} has no prompts")
        prompts = (
            _parse(line, max_tokens, f"{path}, line {number}") if as_json else Request(line, max_tokens)
            for number, line in numbered
        )
        return cls(f"prompts of {path.name}", tuple(prompts))

    @property
    def size(self) -> int | None:
        """Prompts in the file."""
        return len(self.prompts)

    def requests(self, series: int, count: int) -> list[Request]:
        """Every series begins where the one before it would have ended after `count` prompts."""
        start = series * count % len(self.prompts)
        return list(islice(cycle(self.prompts), start, start + count))


def _parse(line: str, max_tokens: int, place: str) -> Request:
    try:
        entry = msgspec.json.decode(line, type=_Line)
    except msgspec.DecodeError as error:
        raise ConfigError(f'{place} is not {{"prompt": ..., "max_tokens": ...}}: {error}') from None
    return Request(entry.prompt, entry.max_tokens or max_tokens)
