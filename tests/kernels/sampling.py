"""Calls of the sampling kernel with defaults for whatever a test does not set, and numpy's idea of the result."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from halfmoon.kernels.sample import SampleFlags, SampleParams, SlotState, empty_slots, reset_slot, sample

Floats = NDArray[np.float32]
_sample, _reset = jax.jit(sample), jax.jit(reset_slot)


@dataclass(frozen=True, slots=True)
class Draw:
    """How rows are drawn: each field one value for all rows, or one a row. `seeds` are 64-bit numbers."""

    temperature: ArrayLike = 1.0
    top_p: ArrayLike = 1.0
    top_k: ArrayLike = 0
    min_p: ArrayLike = 0.0
    presence: ArrayLike = 0.0
    frequency: ArrayLike = 0.0
    repetition: ArrayLike = 1.0
    seeds: int | Sequence[int] = 0
    choices: ArrayLike = 0
    positions: ArrayLike = 0
    slots: ArrayLike = 0
    suppress_stops: ArrayLike = False

    def at(self, rows: int) -> SampleParams:
        """The kernel's columns for so many rows."""

        def column(value: ArrayLike, dtype: type[np.generic]) -> jax.Array:
            return jax.numpy.asarray(np.broadcast_to(np.asarray(value, dtype), rows))

        seeds = [self.seeds] * rows if isinstance(self.seeds, int) else self.seeds
        halves = np.array([(seed >> 32, seed & 0xFFFFFFFF) for seed in seeds], np.uint32)
        return SampleParams(
            temperature=column(self.temperature, np.float32),
            top_p=column(self.top_p, np.float32),
            top_k=column(self.top_k, np.int32),
            min_p=column(self.min_p, np.float32),
            presence=column(self.presence, np.float32),
            frequency=column(self.frequency, np.float32),
            repetition=column(self.repetition, np.float32),
            seeds=jax.numpy.asarray(halves),
            choices=column(self.choices, np.int32),
            positions=column(self.positions, np.int32),
            slots=column(self.slots, np.int32),
            suppress_stops=column(self.suppress_stops, np.bool_),
        )


ALL_WORK = SampleFlags(*(jax.numpy.asarray(True) for _ in SampleFlags._fields))


def without(*work: str) -> SampleFlags:
    """Flags that leave out the named work."""
    return ALL_WORK._replace(**dict.fromkeys(work, jax.numpy.asarray(False)))


@dataclass(frozen=True, slots=True)
class Result:
    """Host copies, see `halfmoon.kernels.sample.Sampled`."""

    tokens: NDArray[np.int32]
    logprobs: Floats
    ranks: NDArray[np.int32]
    top_ids: NDArray[np.int32]
    top_logprobs: Floats


def draw(logits: Floats, how: Draw, slots: SlotState | None = None, flags: SampleFlags = ALL_WORK) -> Result:
    """Samples of logits [rows, vocab]; all of the kernel's work is done unless `flags` say otherwise."""
    state = empty_slots(2, logits.shape[1]) if slots is None else slots
    sampled = _sample(jax.numpy.asarray(logits), how.at(logits.shape[0]), state, flags)
    return Result(*(np.asarray(field) for field in sampled))


def greedy(logits: Floats, how: Draw, slots: SlotState | None = None) -> NDArray[np.int32]:
    """The most likely tokens after adjustment."""
    return draw(logits, replace(how, temperature=0.0), slots).tokens


@dataclass(frozen=True, slots=True)
class Slot:
    """What a slot is filled with."""

    prompt: Sequence[int] = ()
    output: Sequence[int] = ()
    stops: Sequence[int] = ()
    bias: tuple[tuple[int, float], ...] = ()


def fill(state: SlotState, number: int, slot: Slot) -> SlotState:
    """A table with one slot filled anew; id lists are padded with ids past the vocabulary."""
    vocab = state.counts.shape[1]

    def ids(values: Sequence[int]) -> jax.Array:
        return jax.numpy.asarray([*values, *[vocab] * (48 - len(values))], np.int32)

    values = [value for _, value in slot.bias]
    filled: SlotState = _reset(
        state,
        np.int32(number),
        ids(slot.prompt),
        ids(slot.output),
        ids(slot.stops),
        ids([token for token, _ in slot.bias]),
        jax.numpy.asarray([*values, *[0.0] * (48 - len(values))], np.float32),
    )
    return filled


def log_softmax(logits: Floats) -> NDArray[np.float64]:
    """In float64, over the last axis."""
    wide = logits.astype(np.float64)
    shifted = wide - wide.max(axis=-1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result
