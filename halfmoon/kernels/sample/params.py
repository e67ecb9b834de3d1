"""What the sampling kernel takes and gives."""

from typing import NamedTuple

from jax import Array


class SampleParams(NamedTuple):
    """One entry a row, [B] but for the seeds."""

    temperature: Array
    top_p: Array
    top_k: Array
    min_p: Array
    presence: Array
    frequency: Array
    repetition: Array
    seeds: Array
    """uint32 [B, 2]: high and low half."""
    choices: Array
    positions: Array
    slots: Array
    suppress_stops: Array
    """bool: the choice is not yet min_tokens long."""


class SampleFlags(NamedTuple):
    """Scalars that skip work which no row of the batch asks for."""

    adjust: Array
    draw: Array
    truncate: Array
    logprobs: Array


class Sampled(NamedTuple):
    """tokens [B] int32; their log-probabilities [B] and ranks [B] from 1; the best ids and values [B, MAX_LOGPROBS]."""

    tokens: Array
    logprobs: Array
    ranks: Array
    top_ids: Array
    top_logprobs: Array
