"""The online softmax that the attention operations share (Milakov and Gimelshein, 2018; as in FlashAttention)."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array


class Softmax(NamedTuple):
    """Running maximum [..., 1], sum [..., 1] and weighted values [..., head_dim], all float32."""

    maximum: Array
    total: Array
    values: Array


def softmax_start(rows: tuple[int, ...], head_dim: int) -> Softmax:
    """The state before any key was seen."""
    return Softmax(
        jnp.full((*rows, 1), -jnp.inf, jnp.float32),
        jnp.zeros((*rows, 1), jnp.float32),
        jnp.zeros((*rows, head_dim), jnp.float32),
    )


def softmax_add(state: Softmax, scores: Array, visible: Array, values: Array) -> Softmax:
    """Adds keys: scores [kv, rows, keys], visible broadcastable to it, values [kv, keys, head_dim].

    The first keys of a sequence are added first and the very first is visible to every row, so that the maximum is
    finite from then on.
    """
    scores = jnp.where(visible, scores, -jnp.inf)
    maximum = jnp.maximum(state.maximum, scores.max(-1, keepdims=True))
    weights = jnp.exp(scores - maximum)
    keep = jnp.exp(state.maximum - maximum)
    update = jnp.einsum("krt,ktd->krd", weights, values, preferred_element_type=jnp.float32)
    return Softmax(maximum, keep * state.total + weights.sum(-1, keepdims=True), keep * state.values + update)


def softmax_finish(state: Softmax) -> Array:
    """The attention output [..., head_dim]."""
    return state.values / state.total
