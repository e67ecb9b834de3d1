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
class PageSource:
    """The prefix store of another worker: its data plane, and how many of the prompt's first pages it has."""

    endpoint: str
    pages: int


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One request; `publish` asks for the prompt's pages as they are computed.

    `source` is where pages may be had that this worker has not.
    """

    request_id: str
    prompt: tuple[int, ...]
    params: SamplingParams
    task: Task
    priority: int = 0
    publish: bool = False
    source: PageSource | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """Pages are reserved, and those that a prefix store had are there: `cached_tokens` are not computed.

    `missing` pages have to be delivered (ATTACH).
    """

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


@dataclass(frozen=True, slots=True)
class PagesOffered:
    """Complete pages, by content hash, that the store may have before they are reused; `copy_pages` is the answer."""

    hashes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class PagesSought:
    """A prompt waits for pages of the store, until `end_search`: `hashes`, which follow its first `first` pages.

    To compute them would take about `seconds`; 0 where that is not known.
    """

    search: int
    request_id: str
    first: int
    hashes: tuple[bytes, ...]
    seconds: float
    source: PageSource | None


@dataclass(frozen=True, slots=True)
class SearchAbandoned:
    """The prompt is no longer there: nothing more is wanted for this search."""

    search: int


@dataclass(frozen=True, slots=True)
class StoreLink:
    """The prefix store as the engine knows it: where its events go, and whether it may hold a content, at once."""

    sink: "Sink"
    may_hold: Callable[[bytes], bool]


StoreEvent = PagesOffered | PagesSought | SearchAbandoned
Event = Started | Progress | PagesReady | PromptScored | Tokens | Ended | StoreEvent
Sink = Callable[[Event], None]
"""Takes the events of one request, in order; `Ended` is the last. Store events go to the store's sink alone."""
