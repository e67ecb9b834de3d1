"""A request to send, and what makes such requests."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Request:
    """`prompt` is text or token ids; `at` is the time in seconds at which a trace sends it.

    `exact` asks for `max_tokens` tokens whatever the model says, else they are the most.
    """

    prompt: str | Sequence[int]
    max_tokens: int
    exact: bool = False
    at: float = 0.0


class Workload(Protocol):
    """Makes requests; the same arguments make the same ones."""

    @property
    def name(self) -> str:
        """What it is, for the report."""
        ...

    @property
    def size(self) -> int | None:
        """How many requests it has; None for as many as are asked for."""
        ...

    def requests(self, series: int, count: int) -> list[Request]:
        """`count` requests; another `series` gives other prompts where the workload has others."""
        ...
