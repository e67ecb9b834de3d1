"""Draws by Gumbel-max: from the best tokens where they decide a row, else from the whole vocabulary."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

from halfmoon.kernels.sample.candidates import best_tokens, draw_candidates, enough_tokens
from halfmoon.kernels.sample.noise import gumbel, row_keys
from halfmoon.kernels.sample.params import SampleParams


def draw(logits: Array, params: SampleParams, truncate: Array) -> Array:
    """Tokens [B] drawn from logits [B, vocab]; without the scalar `truncate` no row limits what can be drawn.

    Rows that are not to be drawn get any token.
    """
    if not enough_tokens(logits.shape[-1]):
        return draw_full(logits, params, truncate)
    keys = row_keys(params.seeds, params.choices, params.positions)
    candidates = best_tokens(logits)
    best = candidates.logits[:, :1]
    total = lax.cond(
        truncate & jnp.any((params.top_k == 0) & (params.top_p < 1) & ~is_greedy(params)),
        lambda: jnp.exp(_scores(logits, best, params)).sum(axis=-1),
        lambda: jnp.ones(logits.shape[0], jnp.float32),
    )
    scores = _scores(candidates.logits, best, params)
    tokens, decided = draw_candidates(candidates, scores, total, keys, params)
    decided |= is_greedy(params)
    # A decided row keeps its token, so that no other row's fallback has a say in it, not even by rounding.
    full = lax.cond(decided.all(), lambda: tokens, lambda: draw_full(logits, params, truncate))
    return jnp.where(decided, tokens, full)


def draw_full(logits: Array, params: SampleParams, truncate: Array) -> Array:
    """The same draw, looking at every token."""
    keys = row_keys(params.seeds, params.choices, params.positions)
    scores = _scores(logits, logits.max(axis=-1, keepdims=True), params)
    scores = lax.cond(truncate, lambda: _truncate(scores, params), lambda: scores)
    noisy = scores + gumbel(keys, jnp.arange(logits.shape[-1])[None])
    # Within the reductions' loops the logarithms would not be computed in vectors.
    return first_best(lax.optimization_barrier(noisy))


def first_best(values: Array) -> Array:
    """argmax over the last axis, int32. Two plain reductions take a fraction of the time of one over pairs."""
    ids = jnp.arange(values.shape[-1], dtype=jnp.int32)
    best = values == values.max(axis=-1, keepdims=True)
    return jnp.where(best, ids, values.shape[-1] - 1).min(axis=-1)


def is_greedy(params: SampleParams) -> Array:
    """bool [B]: rows that take the best token."""
    return (params.temperature == 0) | (params.top_p == 0)


def _scores(logits: Array, best: Array, params: SampleParams) -> Array:
    """Logits over temperature, 0 at most: no temperature makes them overflow."""
    return (logits - best) / jnp.where(is_greedy(params), 1.0, params.temperature)[:, None]


def _truncate(scores: Array, params: SampleParams) -> Array:
    """top-k, then top-p of what is left, then min-p; what falls out becomes -inf."""
    vocab = scores.shape[-1]
    order = _ordered_bits(scores)
    wanted = jnp.where(params.top_k > 0, params.top_k, vocab)
    kth = _largest_threshold(lambda t: jnp.sum(order >= t, axis=-1, dtype=jnp.int32) >= wanted, scores.shape[0])
    scores = jnp.where(order >= kth[:, None], scores, -jnp.inf)

    shares = jax.nn.softmax(scores, axis=-1)
    nucleus = _largest_threshold(
        lambda t: jnp.sum(jnp.where(order >= t, shares, 0.0), axis=-1) >= params.top_p, scores.shape[0]
    )
    inside = (params.top_p[:, None] >= 1) | (order >= nucleus[:, None])
    return jnp.where(inside & (scores >= jnp.log(params.min_p)[:, None]), scores, -jnp.inf)


def _ordered_bits(values: Array) -> Array:
    """float32 as uint32 in the same order."""
    bits = lax.bitcast_convert_type(values, jnp.uint32)
    return jnp.where(bits >> 31 == 1, ~bits, bits | jnp.uint32(1 << 31))


def _largest_threshold(holds: Callable[[Array], Array], rows: int) -> Array:
    """The largest uint32 [rows] for which `holds(threshold [rows, 1])`, a predicate that is true up to a point."""

    def body(step: Array, threshold: Array) -> Array:
        candidate = threshold | (jnp.uint32(1) << (31 - step).astype(jnp.uint32))
        return jnp.where(holds(candidate[:, None]), candidate, threshold)

    return lax.fori_loop(0, 32, body, jnp.zeros(rows, jnp.uint32))
