"""One worker as the router sees it: what it reported, corrected by what this router did since."""

from dataclasses import dataclass, field
from enum import Enum

from halfmoon.config import PageGeometry


class Role(Enum):
    """What a worker admits: prompts, decoding, or whole requests."""

    PREFILL = "prefill"
    DECODE = "decode"
    BOTH = "both"


class State(Enum):
    """Where a worker is in its life."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class WorkerDescription:
    """What a worker says of itself when it registers. `kv_endpoint`: where its prefix store is read, if anywhere."""

    worker_id: str
    incarnation: int
    address: str
    role: Role
    fingerprint: str
    geometry: PageGeometry
    max_model_len: int
    kv_endpoint: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """A worker's load: requests, pages, and prompt tokens not yet computed. `pages_total` 0: not reported yet."""

    running: int = 0
    waiting: int = 0
    pages_total: int = 0
    pages_free: int = 0
    prefill_tokens_queued: int = 0


@dataclass(slots=True)
class Tally:
    """What this router changed: in all (`own`), and since the last report (`since`), which a report makes void."""

    own: int = 0
    since: int = 0

    def add(self, amount: int) -> None:
        """Adds `amount`, which may be negative."""
        self.own += amount
        self.since += amount

    def estimate(self, reported: int) -> int:
        """The value now: never less than what this router alone accounts for."""
        return max(reported + self.since, self.own, 0)


@dataclass(slots=True, eq=False)
class Worker:
    """A registered incarnation. `suspect`: a call to it broke, so it gets nothing until it reports again.

    `gone` says why it is no longer in the fleet.
    """

    description: WorkerDescription
    state: State
    last_seen: float
    load: Load = Load()
    suspect: bool = False
    gone: str | None = None
    _prefill_tokens: Tally = field(default_factory=Tally)
    _requests: Tally = field(default_factory=Tally)
    _pages: Tally = field(default_factory=Tally)

    @property
    def worker_id(self) -> str:
        """Unique in the fleet."""
        return self.description.worker_id

    @property
    def role(self) -> Role:
        """What it admits."""
        return self.description.role

    @property
    def available(self) -> bool:
        """Whether it may be given work."""
        return self.state is State.READY and not self.suspect and self.gone is None

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens that it has still to compute, now."""
        return self._prefill_tokens.estimate(self.load.prefill_tokens_queued)

    @property
    def requests(self) -> int:
        """Requests that it has, running or waiting, now."""
        return self._requests.estimate(self.load.running + self.load.waiting)

    @property
    def pages_used(self) -> int:
        """Pages in use, now."""
        return self._pages.estimate(self.load.pages_total - self.load.pages_free)

    @property
    def used_share(self) -> float:
        """Share of the page pool in use, from 0 to 1."""
        return min(1.0, self.pages_used / self.load.pages_total) if self.load.pages_total else 0.0

    def has_room(self, tokens: int) -> bool:
        """Whether the pages for `tokens` positions are free, as far as is known."""
        needed = self.description.geometry.pages_for(tokens)
        return not self.load.pages_total or self.pages_used + needed <= self.load.pages_total

    def report(self, state: State, load: Load, now: float) -> None:
        """Takes a heartbeat."""
        self.state, self.load, self.last_seen, self.suspect = state, load, now, False
        for tally in (self._prefill_tokens, self._requests, self._pages):
            tally.since = 0

    def assign(self, *, prefill_tokens: int, pages: int) -> "Assignment":
        """Accounts for a request sent to it, until the assignment is closed."""
        self._prefill_tokens.add(prefill_tokens)
        self._requests.add(1)
        self._pages.add(pages)
        return Assignment(self._prefill_tokens, self._requests, self._pages, prefill_tokens, pages)


@dataclass(slots=True)
class Assignment:
    """One request's share of a worker's load. Owned by the request, which closes it."""

    _prefill: Tally
    _requests: Tally
    _pages: Tally
    _tokens_left: int
    _pages_held: int
    _open: bool = True

    def prefill_left(self, tokens: int) -> None:
        """The request has `tokens` prompt tokens still to compute; never grows."""
        if self._open and tokens < self._tokens_left:
            self._prefill.add(tokens - self._tokens_left)
            self._tokens_left = tokens

    def close(self) -> None:
        """The worker has this request no more. Idempotent."""
        if self._open:
            self.prefill_left(0)
            self._requests.add(-1)
            self._pages.add(-self._pages_held)
            self._open = False
