"""What the engine hands to the runner and gets back: plain Python and numpy."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from halfmoon.request import Logprob, PositionLogprobs, SamplingParams

Pages = Sequence[int]
"""A sequence's page table: page ids in order."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """New positions of one sequence, from `start`, a multiple of the bucket's run.

    `targets` holds the following token of each position where prompt log-probabilities are wanted.
    """

    token_ids: Sequence[int]
    start: int
    pages: Pages
    wants_logits: bool
    targets: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class DecodeRow:
    """The last token of one sequence, at `position`."""

    token_id: int
    position: int
    pages: Pages


@dataclass(frozen=True, slots=True)
class SampleRow:
    """How to draw one token from row `logits_row`; `position` counts from 0 in the choice's output."""

    logits_row: int
    params: SamplingParams
    choice: int
    position: int
    slot: int = 0


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """Host copies of what was drawn, see `halfmoon.kernels.sample.Sampled`."""

    tokens: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    ranks: NDArray[np.int32]
    top_ids: NDArray[np.int32]
    top_logprobs: NDArray[np.float32]

    def at(self, row: int, alternatives: int | None) -> PositionLogprobs | None:
        """Row's log-probabilities with so many alternatives; None where none were asked for."""
        if alternatives is None:
            return None
        chosen = Logprob(int(self.tokens[row]), float(self.logprobs[row]), int(self.ranks[row]))
        ids, values = self.top_ids[row, :alternatives].tolist(), self.top_logprobs[row, :alternatives].tolist()
        top = [Logprob(token, value, rank) for rank, (token, value) in enumerate(zip(ids, values, strict=True), 1)]
        return PositionLogprobs(chosen, tuple(top))
