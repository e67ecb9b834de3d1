"""What a level of load showed, from its samples."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.arithmetic import Distribution, describe
from bench.levels import Level
from bench.samples import Sample

_KINDS_OF_ERRORS = 5


@dataclass(frozen=True, slots=True)
class Objectives:
    """Upper bounds in seconds that an answer must keep to count as good; None sets no bound."""

    ttft: float | None = None
    tpot: float | None = None

    @property
    def exist(self) -> bool:
        """Whether there is any bound."""
        return self.ttft is not None or self.tpot is not None

    def met_by(self, sample: Sample) -> bool:
        """Whether the request was answered within the bounds; an answer of one token has no time per output token."""
        if sample.error is not None or sample.ttft is None:
            return False
        slow_start = self.ttft is not None and sample.ttft > self.ttft
        slow_tokens = self.tpot is not None and sample.tpot is not None and sample.tpot > self.tpot
        return not (slow_start or slow_tokens)


@dataclass(frozen=True, slots=True)
class Summary:
    """A level's results: times in seconds, rates per second.

    Latencies and tokens are of answered requests alone. `short` counts answers with fewer tokens than asked for.
    `goodput` is requests per second that kept the objectives, None where there are none. `send_lag` is how late the
    client itself was, at most. `client_cpu` is the share of one core that the client used.
    """

    level: Level
    duration: float
    requests: int
    failed: int
    short: int
    errors: dict[str, int]
    input_tokens: int
    output_tokens: int
    requests_per_second: float
    output_tokens_per_second: float
    total_tokens_per_second: float
    goodput: float | None
    ttft: Distribution | None
    tpot: Distribution | None
    itl: Distribution | None
    end_to_end: Distribution | None
    send_lag: float
    client_cpu: float


def summarize(
    level: Level, samples: Sequence[Sample], *, duration: float, cpu_seconds: float, objectives: Objectives
) -> Summary:
    """The summary of a level that took `duration` seconds, of which the client computed `cpu_seconds`."""
    answered = [sample for sample in samples if sample.error is None]
    errors = Counter(sample.error for sample in samples if sample.error is not None)
    inputs = sum(sample.prompt_tokens for sample in answered)
    outputs = sum(sample.output_tokens for sample in answered)
    return Summary(
        level=level,
        duration=duration,
        requests=len(samples),
        failed=len(samples) - len(answered),
        short=sum(sample.output_tokens < sample.wanted_tokens for sample in answered),
        errors=dict(errors.most_common(_KINDS_OF_ERRORS)),
        input_tokens=inputs,
        output_tokens=outputs,
        requests_per_second=len(answered) / duration,
        output_tokens_per_second=outputs / duration,
        total_tokens_per_second=(inputs + outputs) / duration,
        goodput=sum(map(objectives.met_by, samples)) / duration if objectives.exist else None,
        ttft=_known(answered, lambda sample: sample.ttft),
        tpot=_known(answered, lambda sample: sample.tpot),
        itl=describe([gap for sample in answered for gap in sample.inter_token_latencies()]),
        end_to_end=describe([sample.end_to_end for sample in answered]),
        send_lag=max((sample.sent - sample.planned for sample in samples), default=0.0),
        client_cpu=cpu_seconds / duration,
    )


def _known(samples: Sequence[Sample], measure: Callable[[Sample], float | None]) -> Distribution | None:
    return describe([value for sample in samples if (value := measure(sample)) is not None])
