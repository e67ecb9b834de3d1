"""Plain XLA sampling, exact and without a sort.

The draw is Gumbel-max: the noise of a token depends on (seed, choice, position, token id) alone, so that a row's sample
does not depend on its batch. Thresholds of top-k and top-p are found by bisection over the bits of the scores.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from halfmoon.config import MAX_LOGPROBS
from halfmoon.kernels.sample.slots import SlotState


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


def sample(logits: Array, params: SampleParams, slots: SlotState, flags: SampleFlags) -> Sampled:
    """One token a row of float32 logits [B, vocab]."""
    adjusted = lax.cond(flags.adjust, lambda: _adjust(logits, params, slots), lambda: logits)
    best = jnp.argmax(adjusted, axis=-1).astype(jnp.int32)
    tokens = lax.cond(flags.draw, lambda: _draw(adjusted, best, params, flags), lambda: best)
    return lax.cond(
        flags.logprobs, lambda: logprobs_of(logits, tokens), lambda: _without_logprobs(tokens, logits.shape[-1])
    )


def logprobs_of(logits: Array, tokens: Array) -> Sampled:
    """Log-probabilities of given tokens [B], under raw logits [B, vocab]."""
    total = jax.nn.logsumexp(logits, axis=-1)
    chosen = jnp.take_along_axis(logits, tokens[:, None], axis=-1)
    ranks = 1 + jnp.sum(logits > chosen, axis=-1, dtype=jnp.int32)
    top, ids = lax.top_k(logits, min(MAX_LOGPROBS, logits.shape[-1]))
    return Sampled(tokens, chosen[:, 0] - total, ranks, ids.astype(jnp.int32), top - total[:, None])


def _without_logprobs(tokens: Array, vocab: int) -> Sampled:
    rows, width = tokens.shape[0], min(MAX_LOGPROBS, vocab)
    return Sampled(
        tokens,
        jnp.zeros(rows, jnp.float32),
        jnp.zeros(rows, jnp.int32),
        jnp.zeros((rows, width), jnp.int32),
        jnp.zeros((rows, width), jnp.float32),
    )


def _adjust(logits: Array, params: SampleParams, slots: SlotState) -> Array:
    counts, prompt = slots.counts[params.slots], slots.prompt[params.slots]
    repetition = params.repetition[:, None]
    repeated = jnp.where(logits > 0, logits / repetition, logits * repetition)
    logits = jnp.where((counts > 0) | prompt, repeated, logits)
    logits -= params.frequency[:, None] * counts + params.presence[:, None] * (counts > 0)
    logits += slots.bias[params.slots]
    return jnp.where(slots.stops[params.slots] & params.suppress_stops[:, None], -jnp.inf, logits)


def _draw(logits: Array, best: Array, params: SampleParams, flags: SampleFlags) -> Array:
    greedy = (params.temperature == 0) | (params.top_p == 0)
    below_best = logits - logits.max(axis=-1, keepdims=True)  # 0 at most: no temperature makes it overflow
    scores = below_best / jnp.where(greedy, 1.0, params.temperature)[:, None]
    scores = lax.cond(flags.truncate, lambda: _truncate(scores, params), lambda: scores)
    noise = jax.vmap(lambda key: jax.random.gumbel(key, (scores.shape[-1],)))(_keys(params))
    return jnp.where(greedy, best, jnp.argmax(scores + noise, axis=-1).astype(jnp.int32))


def _keys(params: SampleParams) -> Array:
    keys = jax.random.wrap_key_data(params.seeds, impl="threefry2x32")
    return jax.vmap(lambda key, choice, position: jax.random.fold_in(jax.random.fold_in(key, choice), position))(
        keys, params.choices, params.positions
    )


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
    likely = shares >= params.min_p[:, None] * shares.max(axis=-1, keepdims=True)
    return jnp.where(inside & likely, scores, -jnp.inf)


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
