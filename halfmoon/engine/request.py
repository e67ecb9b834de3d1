"""What a tier asks of its engine, and what the engine answers."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import jax

from halfmoon.errors import HalfmoonError
from halfmoon.request import OutputToken, PositionLogprobs, SamplingParams


class Task(Enum):
    """Which part of a request this engine does."""

    PREFILL = "prefill"
    """The prompt and the first tokens."""
    GENERATE = "generate"
    """Everything."""
    ATTACH = "attach"
    """Everything after the first tokens; the prompt's KV comes from elsewhere."""


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One request; `publish` asks for the prompt's pages as they are computed."""

    request_id: str
    prompt: tuple[int, ...]
    params: SamplingParams
    task: Task
    priority: int = 0
    publish: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    """Pages are reserved: `cached_tokens` were in the prefix cache, `missing` pages have to be delivered (ATTACH)."""

    cached_tokens: int
    missing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """The prompt is computed up to `computed` tokens."""

    computed: int


@dataclass(frozen=True, slots=True)
class PagesReady:
    """Pages `first`.. of the prompt are complete: arrays [n, *page] with how many of the n count."""

    first: int
    blocks: tuple[tuple[jax.Array, int], ...]


@dataclass(frozen=True, slots=True)
class PromptScored:
    """One entry for each prompt token."""

    entries: tuple[PositionLogprobs, ...]


@dataclass(frozen=True, slots=True)
class Tokens:
    """What one step wrote for this request."""

    tokens: tuple[OutputToken, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """The request is over and holds nothing; `error` is None when it ended well."""

    error: HalfmoonError | None = None


Event = Started | Progress | PagesReady | PromptScored | Tokens | Ended
Sink = Callable[[Event], None]
"""Takes the events of one request, in order; `Ended` is the last."""
