"""What penalties, biases and forbidden tokens need to know of each sequence: one row a slot, kept on the device.

Slot 0 is for rows that need none of it.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array


class SlotState(NamedTuple):
    """Rows over the vocabulary, [slots, vocab] each."""

    counts: Array
    """int32: times that the token was written."""
    prompt: Array
    """bool: whether the prompt has the token."""
    bias: Array
    """float32: added to the logit."""
    stops: Array
    """bool: whether the token would end the choice."""


def empty_slots(slots: int, vocab: int) -> SlotState:
    """A table of rows that change nothing."""
    return SlotState(
        jnp.zeros((slots, vocab), jnp.int32),
        jnp.zeros((slots, vocab), bool),
        jnp.zeros((slots, vocab), jnp.float32),
        jnp.zeros((slots, vocab), bool),
    )


def reset_slot(
    state: SlotState, slot: Array, prompt: Array, output: Array, stops: Array, bias_ids: Array, bias: Array
) -> SlotState:
    """Fills one row from id lists padded with ids past the vocabulary. `state` is to be donated."""
    vocab = state.counts.shape[1]
    return SlotState(
        state.counts.at[slot].set(jnp.zeros(vocab, jnp.int32).at[output].add(1, mode="drop")),
        state.prompt.at[slot].set(jnp.zeros(vocab, bool).at[prompt].set(True, mode="drop")),
        state.bias.at[slot].set(jnp.zeros(vocab, jnp.float32).at[bias_ids].set(bias, mode="drop")),
        state.stops.at[slot].set(jnp.zeros(vocab, bool).at[stops].set(True, mode="drop")),
    )


def count_tokens(state: SlotState, slots: Array, tokens: Array) -> SlotState:
    """Adds one written token to each row of `slots`. `state` is to be donated."""
    return state._replace(counts=state.counts.at[slots, tokens].add(1))
