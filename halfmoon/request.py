"""The request as every tier sees it: sampling parameters, finish reasons, output tokens."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class FinishReason(Enum):
    """Why a choice ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen and when a choice ends; validated by the router, see `SamplingParams` in common.proto.

    `temperature` 0 is greedy. `seed` is an unsigned 64-bit number. `logprobs` and `prompt_logprobs` are the number of
    alternatives, None where not asked for. `max_tokens` 0 computes the prompt alone.
    """

    max_tokens: int
    seed: int = 0
    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken without drawing."""
        return self.temperature == 0.0 or self.top_p == 0.0

    @property
    def adjusts_logits(self) -> bool:
        """Whether logits are changed by more than temperature and truncation."""
        return bool(
            self.presence_penalty
            or self.frequency_penalty
            or self.repetition_penalty != 1.0
            or self.logit_bias
            or self.min_tokens
        )


@dataclass(frozen=True, slots=True)
class Logprob:
    """One candidate: its id, natural log-probability under the raw logits, and rank from 1 (0: not computed)."""

    token_id: int
    logprob: float
    rank: int = 0


@dataclass(frozen=True, slots=True)
class PositionLogprobs:
    """Log-probabilities at one position; `chosen` is None for the first token of a prompt."""

    chosen: Logprob | None
    top: tuple[Logprob, ...] = ()


@dataclass(frozen=True, slots=True)
class OutputToken:
    """One generated token: `position` counts from 0 within its choice; `finish` is set on the choice's last token."""

    choice: int
    position: int
    token_id: int
    logprobs: PositionLogprobs | None = None
    finish: FinishReason | None = None
