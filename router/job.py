"""One request, made ready: tokens, checked parameters, and how its text is to be shown."""

from collections.abc import Sequence
from dataclasses import dataclass

from halfmoon.request import SamplingParams


@dataclass(frozen=True, slots=True)
class Job:
    """A request that can be served. `deadline` is on the clock of `time.monotonic`."""

    request_id: str
    prompt_ids: Sequence[int]
    prompt_text: str | None
    sampling: SamplingParams
    stop: tuple[str, ...] = ()
    include_stop: bool = False
    keep_special: bool = False
    echo: bool = False
    priority: int = 0
    deadline: float = float("inf")

    @property
    def decodes(self) -> bool:
        """Whether anything follows the first token."""
        return self.sampling.max_tokens > 1
