"""Random prompts of a given length."""

import random
from dataclasses import dataclass

from bench.workloads.request import Request
from bench.workloads.vocabulary import random_ids

_WORDS = (
    *("time", "year", "people", "way", "day", "man", "thing", "life", "child", "world", "school", "state", "family"),
    *("student", "group", "country", "problem", "hand", "part", "place", "case", "week", "company", "system", "work"),
    *("number", "night", "point", "home", "water", "room", "mother", "area", "money", "story", "fact", "month", "lot"),
    *("study", "book", "eye", "job", "word", "business", "issue", "side", "kind", "head", "house", "question"),
)
"""Common words, mostly of one token each."""


@dataclass(frozen=True, slots=True)
class RandomPrompts:
    """Prompts of `input_len` random tokens, answers of exactly `output_len`.

    With `vocab_size` None the prompts are text of `input_len` common words, which is about as many tokens.
    """

    input_len: int
    output_len: int
    vocab_size: int | None
    seed: int = 0

    @property
    def name(self) -> str:
        """What it is."""
        unit = "words" if self.vocab_size is None else "random tokens"
        return f"{self.input_len} {unit} in, {self.output_len} tokens out"

    @property
    def size(self) -> int | None:
        """As many as are asked for."""
        return None

    def requests(self, series: int, count: int) -> list[Request]:
        """No two prompts begin alike, in a series or between two."""
        source = random.Random(f"{self.seed}/{series}")
        return [Request(self._prompt(source), self.output_len, exact=True) for _ in range(count)]

    def _prompt(self, source: random.Random) -> str | list[int]:
        if self.vocab_size is None:
            return " ".join(source.choices(_WORDS, k=self.input_len))
        return random_ids(source, self.input_len, self.vocab_size)
