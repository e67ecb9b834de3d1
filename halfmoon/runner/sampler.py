"""Sampling for batches of rows: slots on the device, padded inputs, compiled programs per batch size."""

import functools
from collections.abc import Callable, Sequence
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from halfmoon.config import MAX_LOGIT_BIASES, MAX_STOP_TOKEN_IDS
from halfmoon.kernels.sample import (
    Sampled,
    SampleFlags,
    SampleParams,
    count_tokens,
    empty_slots,
    reset_slot,
    sample,
)
from halfmoon.request import SamplingParams
from halfmoon.runner.batch import SampledTokens, SampleRow
from halfmoon.runner.buckets import BucketTable
from halfmoon.runner.programs import Programs, shape_of

_STOP_IDS = 2 * MAX_STOP_TOKEN_IDS
"""Room for a request's stop tokens and as many end tokens of the model."""

_LARGEST_TOP_K = np.iinfo(np.int32).max
"""Clients may ask for more than the device's integers hold; it is past every vocabulary."""


class Sampler:
    """Owns the slot table. Slots 1.. are given out by the scheduler; slot 0 changes nothing."""

    def __init__(self, vocab: int, slots: int, max_model_len: int, buckets: BucketTable) -> None:
        self._vocab = vocab
        self._max_model_len = max_model_len
        self._buckets = buckets
        self._state = empty_slots(slots, vocab)
        self._programs = Programs()

    def compile_steps(self, logits_rows: Sequence[int]) -> list[tuple[str, Callable[[], None]]]:
        """What has to be compiled: (name, thunk). `logits_rows` are the numbers of rows that logits come with."""
        steps: list[tuple[str, Callable[[], None]]] = [("slots", self._compile_reset)]
        steps.extend(
            (f"sample {batch}", functools.partial(self._compile_sample, batch, logits_rows))
            for batch in self._buckets.decode
        )
        return steps

    def fill_slot(
        self, slot: int, params: SamplingParams, prompt: Sequence[int], output: Sequence[int], end_ids: Sequence[int]
    ) -> None:
        """Prepares a slot for a sequence whose parameters adjust logits; `end_ids` are suppressed below min_tokens."""
        bias_ids, bias = list(params.logit_bias), list(params.logit_bias.values())
        values = np.zeros(MAX_LOGIT_BIASES, np.float32)
        values[: len(bias)] = bias
        self._state = self._programs["reset"](
            self._state,
            np.int32(slot),
            self._ids(prompt, self._max_model_len),
            self._ids(output, self._max_model_len),
            self._ids(end_ids, _STOP_IDS),
            self._ids(bias_ids, MAX_LOGIT_BIASES),
            values,
        )

    def draw(self, logits: jax.Array, rows: Sequence[SampleRow]) -> Sampled:
        """Draws one token for each row, which names its row of `logits`; waits for nothing, counts nothing."""
        batch = self._buckets.decode_for(len(rows))
        picked = self._pick(logits, rows, batch)
        params, flags = _pack(rows, batch)
        drawn: Sampled = self._programs["sample", batch](picked, params, self._state, flags)
        return drawn

    def count(self, rows: Sequence[SampleRow], tokens: jax.Array) -> None:
        """Adds the tokens [batch] that were drawn for `rows` to their slots, where they have one."""
        if any(row.slot for row in rows):
            batch = tokens.shape[0]
            slots = np.zeros(batch, np.int32)
            slots[: len(rows)] = [row.slot for row in rows]
            self._state = self._programs["count", batch](self._state, slots, tokens)

    def _pick(self, logits: jax.Array, rows: Sequence[SampleRow], batch: int) -> jax.Array:
        indices = [row.logits_row for row in rows]
        if logits.shape[0] == batch and indices == list(range(len(rows))):
            return logits
        places = np.zeros(batch, np.int32)
        places[: len(rows)] = indices
        picked: jax.Array = self._programs["pick", logits.shape[0], batch](logits, places)
        return picked

    def _ids(self, ids: Sequence[int], width: int) -> NDArray[np.int32]:
        padded = np.full(width, self._vocab, np.int32)
        padded[: len(ids)] = ids
        return padded

    def _compile_reset(self) -> None:
        ids, long_ids = self._ids([], MAX_LOGIT_BIASES), self._ids([], self._max_model_len)
        arguments = (self._state, np.int32(0), long_ids, long_ids, self._ids([], _STOP_IDS), ids)
        self._programs.compile("reset", reset_slot, *arguments, np.zeros(MAX_LOGIT_BIASES, np.float32), donate=(0,))

    def _compile_sample(self, batch: int, logits_rows: Sequence[int]) -> None:
        params, flags = _pack([], batch)
        logits = shape_of((batch, self._vocab), jnp.float32)
        tokens = shape_of((batch,), jnp.int32)
        self._programs.compile(("sample", batch), sample, logits, params, self._state, flags)
        self._programs.compile(("count", batch), count_tokens, self._state, tokens, tokens, donate=(0,))
        for rows in {batch, *logits_rows}:
            source = shape_of((rows, self._vocab), jnp.float32)
            self._programs.compile(("pick", rows, batch), _take_rows, source, tokens)


def to_host(sampled: Sampled) -> SampledTokens:
    """Waits for the device and copies."""
    return SampledTokens(*(np.asarray(field) for field in sampled))


def _take_rows(logits: jax.Array, places: jax.Array) -> jax.Array:
    return logits[places]


def _pack(rows: Sequence[SampleRow], batch: int) -> tuple[SampleParams, SampleFlags]:
    params = [row.params for row in rows]

    def column(values: Sequence[float | int | bool], dtype: type[np.generic], fill: float = 0) -> NDArray[np.generic]:
        padded = np.full(batch, fill, dtype)
        padded[: len(values)] = values
        return padded

    seeds = np.zeros((batch, 2), np.uint32)
    for index, each in enumerate(params):
        seeds[index] = (each.seed >> 32, each.seed & 0xFFFFFFFF)
    columns = {
        "temperature": column([each.temperature for each in params], np.float32),
        "top_p": column([each.top_p for each in params], np.float32, 1.0),
        "top_k": column([min(each.top_k, _LARGEST_TOP_K) for each in params], np.int32),
        "min_p": column([each.min_p for each in params], np.float32),
        "presence": column([each.presence_penalty for each in params], np.float32),
        "frequency": column([each.frequency_penalty for each in params], np.float32),
        "repetition": column([each.repetition_penalty for each in params], np.float32, 1.0),
        "seeds": seeds,
        "choices": column([row.choice for row in rows], np.int32),
        "positions": column([row.position for row in rows], np.int32),
        "slots": column([row.slot for row in rows], np.int32),
        "suppress_stops": column([row.position < row.params.min_tokens for row in rows], np.bool_),
    }
    drawn = [each for each in params if not each.greedy]
    flags = {
        "adjust": np.bool_(any(row.slot for row in rows)),
        "draw": np.bool_(bool(drawn)),
        "truncate": np.bool_(any(each.top_p < 1 or each.top_k or each.min_p for each in drawn)),
        "logprobs": np.bool_(any(each.logprobs is not None for each in params)),
    }
    # The compiled programs take numpy arrays where the types say jax arrays.
    return SampleParams(**cast(dict[str, jax.Array], columns)), SampleFlags(**cast(dict[str, jax.Array], flags))
