"""A sequence (one choice of a request) and the job that it belongs to: the objects that travel through the engine."""

from dataclasses import dataclass, field

from halfmoon.cache.hashing import page_hash
from halfmoon.engine.request import EngineRequest, Sink, Task
from halfmoon.request import PositionLogprobs, SamplingParams


@dataclass(slots=True, eq=False)
class Sequence:
    """One choice. `tokens` is prompt and output; the KV of the first `computed` of them is in `pages`.

    `hashes` are the content hashes of the full pages so far; `slot` is the sampling slot, 0 for none.
    """

    job: "Job"
    choice: int
    tokens: list[int]
    computed: int = 0
    pages: list[int] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)
    slot: int = 0
    published: int = 0

    @property
    def params(self) -> SamplingParams:
        """The request's sampling parameters."""
        return self.job.request.params

    @property
    def written(self) -> int:
        """Tokens of output so far."""
        return len(self.tokens) - len(self.job.request.prompt)

    @property
    def output(self) -> list[int]:
        """The output so far."""
        return self.tokens[len(self.job.request.prompt) :]

    @property
    def uncomputed(self) -> int:
        """Tokens whose KV is not in the pages yet."""
        return len(self.tokens) - self.computed

    @property
    def order(self) -> tuple[int, int, int]:
        """Served first when smaller: priority, arrival, choice."""
        return (self.job.request.priority, self.job.arrival, self.choice)

    def extend_hashes(self, salt: bytes, page_size: int, upto: int) -> None:
        """Adds the hashes of the full pages within the first `upto` tokens."""
        while (len(self.hashes) + 1) * page_size <= upto:
            start = len(self.hashes) * page_size
            parent = self.hashes[-1] if self.hashes else salt
            self.hashes.append(page_hash(parent, self.tokens[start : start + page_size]))


@dataclass(slots=True, eq=False)
class Job:
    """One request in the engine: its sequences that are alive and where its events go."""

    request: EngineRequest
    sink: Sink
    arrival: int
    end_ids: frozenset[int]
    sequences: list[Sequence] = field(default_factory=list)
    prompt_logprobs: list[PositionLogprobs] = field(default_factory=list)
    awaited: set[int] = field(default_factory=set)
    """Pages of an ATTACH that have not been delivered."""
    sought: tuple[bytes, ...] = ()
    """Pages that are looked for in a prefix store, before the prompt is computed."""
    received: bool = False
    """An ATTACH has all its pages; from then on it is computed here when it has to be computed again."""
    scored: bool = False
    """The prompt's log-probabilities were sent."""
    stopped: set[int] = field(default_factory=set)
    """Choices that are over before they have begun here."""

    @property
    def request_id(self) -> str:
        """The request's id."""
        return self.request.request_id

    @property
    def lead(self) -> Sequence:
        """The sequence that computes, or receives, the prompt for all choices."""
        return self.sequences[0]

    @property
    def begun(self) -> bool:
        """Whether the choices run, and not the prompt alone."""
        return self.lead.written > 0

    @property
    def wants_prompt_logprobs(self) -> bool:
        """Whether prompt log-probabilities are still to be computed."""
        asked = self.request.params.prompt_logprobs is not None and self.request.task is not Task.ATTACH
        return asked and not self.scored

    @property
    def computes(self) -> bool:
        """Whether tokens without KV are computed here, and not awaited from elsewhere."""
        return self.received or self.request.task is not Task.ATTACH
