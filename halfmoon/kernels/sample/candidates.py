"""Draws from the best tokens of each row alone, and says for which rows that is the draw from all tokens."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from halfmoon.kernels.sample.noise import LARGEST_NOISE, gumbel
from halfmoon.kernels.sample.params import SampleParams

CANDIDATES = 128
"""Best tokens of a row that are looked at."""

_PAST_ALL = (1 << 31) - 1

_BLOCK = 32
"""Tokens of which only the largest takes part in the first stage."""


class Candidates(NamedTuple):
    """The best tokens [B, CANDIDATES], best first: logits and ids. No other token's logit exceeds the last."""

    logits: Array
    ids: Array


def enough_tokens(vocab: int) -> bool:
    """Whether a vocabulary is large enough to have candidates."""
    return vocab > CANDIDATES * _BLOCK // 2


def best_tokens(logits: Array) -> Candidates:
    """Top CANDIDATES of logits [B, vocab]: they all are in the blocks with the largest maxima."""
    rows, vocab = logits.shape
    blocks = -(-vocab // _BLOCK)
    padded = jnp.pad(logits, ((0, 0), (0, blocks * _BLOCK - vocab)), constant_values=-jnp.inf)
    # A block is every `blocks`-th token: its maximum is taken over whole vectors.
    maxima = padded.reshape(rows, _BLOCK, blocks).max(axis=1)
    _, chosen = lax.top_k(maxima, min(CANDIDATES, blocks))
    ids = (chosen[:, None, :] + blocks * jnp.arange(_BLOCK)[:, None]).reshape(rows, -1)
    values = jnp.take_along_axis(padded, ids, axis=1)
    # The barrier keeps slices of the result from turning the selection into a sort.
    best, places = lax.optimization_barrier(lax.top_k(values, CANDIDATES))
    return Candidates(best, jnp.take_along_axis(ids, places, axis=1).astype(jnp.int32))


def draw_candidates(
    candidates: Candidates, scores: Array, total: Array, keys: Array, params: SampleParams
) -> tuple[Array, Array]:
    """Tokens [B], and whether each is certain to be what a draw from the whole vocabulary gives.

    scores [B, CANDIDATES] and total [B], the sum of exp(score) over the vocabulary.
    """
    threshold, known = _threshold(scores, total, params)
    noisy = jnp.where(scores >= threshold[:, None], scores + gumbel(keys, candidates.ids), -jnp.inf)
    best, last = noisy.max(axis=1), scores[:, -1]
    tokens = jnp.where(noisy == best[:, None], candidates.ids, _PAST_ALL).min(axis=1)
    return tokens, known & ((threshold > last) | (best > last + LARGEST_NOISE))


def _threshold(scores: Array, total: Array, params: SampleParams) -> tuple[Array, Array]:
    """The least score [B] that can be drawn, -inf where it may be below all candidates; whether it is known at all."""
    few = (params.top_k > 0) & (params.top_k <= CANDIDATES)
    place = jnp.clip(params.top_k - 1, 0, CANDIDATES - 1)[:, None]
    kth = jnp.where(few, jnp.take_along_axis(scores, place, axis=1)[:, 0], -jnp.inf)

    weights = jnp.where(scores >= kth[:, None], jnp.exp(scores), 0.0)
    total = jnp.where(few, weights.sum(axis=1), total)
    outside = jnp.cumsum(weights, axis=1) < (params.top_p * total)[:, None]
    needed = outside.sum(axis=1)
    reached = jnp.take_along_axis(scores, jnp.minimum(needed, CANDIDATES - 1)[:, None], axis=1)[:, 0]
    nucleus = jnp.where((params.top_p < 1) & (needed < CANDIDATES), reached, -jnp.inf)

    # Ties with the k-th may go on outside, and then the mass of the best k is not known.
    unsure = (params.top_k > 0) & (kth <= scores[:, -1]) & (params.top_p < 1)
    return jnp.maximum(jnp.maximum(kth, nucleus), jnp.log(params.min_p)), ~unsure
