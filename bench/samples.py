"""One request as the client saw it, and the latencies that follow from it."""

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Sample:
    """A request's times, in seconds since its level began.

    `arrivals` are the times at which text or tokens came, `counts` the tokens that each brought; together they are
    `output_tokens`. `planned` is when the schedule wanted it sent. `error` is None for a request that was answered.
    """

    planned: float
    sent: float
    finished: float = 0.0
    prompt_tokens: int = 0
    wanted_tokens: int = 0
    arrivals: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    error: str | None = None

    @property
    def output_tokens(self) -> int:
        """Tokens of the answer."""
        return sum(self.counts)

    @property
    def ttft(self) -> float | None:
        """Time to first token; None where none came."""
        return self.arrivals[0] - self.sent if self.arrivals else None

    @property
    def tpot(self) -> float | None:
        """Time per output token after the first; None where there is no second one."""
        if self.output_tokens < 2:
            return None
        return (self.arrivals[-1] - self.arrivals[0]) / (self.output_tokens - 1)

    @property
    def end_to_end(self) -> float:
        """From sending to the end of the answer."""
        return self.finished - self.sent

    def inter_token_latencies(self) -> Iterator[float]:
        """One gap before every token but the first: their sum is the time from the first token to the last.

        Tokens that came together share the gap before them evenly; tokens that came with the first one had none.
        """
        for index, count in enumerate(self.counts):
            if index == 0:
                yield from (0.0 for _ in range(count - 1))
            elif count:
                gap = (self.arrivals[index] - self.arrivals[index - 1]) / count
                yield from (gap for _ in range(count))
