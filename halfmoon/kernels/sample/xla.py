"""Plain XLA sampling, exact and without a sort of the vocabulary."""

import jax
import jax.numpy as jnp
from jax import Array, lax

from halfmoon.config import MAX_LOGPROBS
from halfmoon.kernels.sample.draw import draw, first_best, is_greedy
from halfmoon.kernels.sample.params import Sampled, SampleFlags, SampleParams
from halfmoon.kernels.sample.slots import SlotState


def sample(logits: Array, params: SampleParams, slots: SlotState, flags: SampleFlags) -> Sampled:
    """One token a row of float32 logits [B, vocab]."""
    # Each way has its own copy of the choice: one that follows the condition would have the logits copied.
    tokens = lax.cond(
        flags.adjust,
        lambda: _choose(_adjust(logits, params, slots), params, flags),
        lambda: _choose(logits, params, flags),
    )
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


def _choose(logits: Array, params: SampleParams, flags: SampleFlags) -> Array:
    best = first_best(logits)
    drawn = lax.cond(flags.draw, lambda: draw(logits, params, flags.truncate), lambda: best)
    return jnp.where(is_greedy(params), best, drawn)


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
