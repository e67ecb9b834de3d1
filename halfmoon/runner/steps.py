"""The functions that get compiled: each takes the model's state and the caches, and returns the caches updated.

The caches are donated by the caller and updated in place; no step may copy them.
"""

from typing import Any

import jax.numpy as jnp
from flax import nnx
from jax import Array

from halfmoon.config import PageGeometry
from halfmoon.kernels.chunked_prefill import chunked_prefill
from halfmoon.kernels.kv_pages import Caches
from halfmoon.kernels.kv_write import write_runs, write_tokens
from halfmoon.kernels.paged_decode import paged_decode
from halfmoon.kernels.sample import Sampled, logprobs_of
from halfmoon.kernels.storage import stored_dtype
from halfmoon.models.llama import Llama

State = nnx.State[Any, Any]
Graph = nnx.GraphDef[Llama]


def prefill_step(
    graph: Graph,
    state: State,
    caches: Caches,
    tokens: Array,
    starts: Array,
    tables: Array,
    rows: Array,
) -> tuple[Caches, Array, Array]:
    """Computes runs of new positions.

    tokens [N * run]; starts [N], the position of each run's first token; tables [N, max_pages], the pages of each run's
    sequence; rows [R], places in `tokens` whose logits are wanted. Returns the caches, hidden [hidden, N * run] and
    logits [R, vocab].
    """
    model: Llama = nnx.merge(graph, state)
    caches = list(caches)
    run = tokens.shape[0] // starts.shape[0]
    positions = (starts[:, None] + jnp.arange(run)).reshape(-1)
    page_size = caches[0][0].shape[-1]
    pages = jnp.take_along_axis(tables, (starts // page_size)[:, None], axis=1)[:, 0]

    def attend(layer: int, q: Array, k: Array, v: Array) -> Array:
        caches[layer] = write_runs(*caches[layer], k, v, pages, starts % page_size)
        return chunked_prefill(q, *caches[layer], tables, starts)

    hidden = model(tokens, positions, attend)
    return caches, hidden, model.logits(hidden[:, rows])


def decode_step(
    graph: Graph, state: State, caches: Caches, tokens: Array, positions: Array, tables: Array
) -> tuple[Caches, Array]:
    """Computes one new token [B] a sequence at positions [B], pages in tables [B, max_pages]: logits [B, vocab]."""
    model: Llama = nnx.merge(graph, state)
    caches = list(caches)
    page_size = caches[0][0].shape[-1]
    pages = jnp.take_along_axis(tables, (positions // page_size)[:, None], axis=1)[:, 0]

    def attend(layer: int, q: Array, k: Array, v: Array) -> Array:
        caches[layer] = write_tokens(*caches[layer], k, v, pages, positions % page_size)
        return paged_decode(q, *caches[layer], tables, positions + 1)

    hidden = model(tokens, positions, attend)
    return caches, model.logits(hidden)


def prompt_logprobs_step(graph: Graph, state: State, hidden: Array, places: Array, targets: Array) -> Sampled:
    """Log-probabilities of the tokens `targets` [L] that follow the places [L] of hidden [hidden, T]."""
    model: Llama = nnx.merge(graph, state)
    return logprobs_of(model.logits(hidden[:, places]), targets)


def empty_caches(pages: int, geometry: PageGeometry) -> Caches:
    """Caches of zeros for `pages` pages, the scratch page included."""
    kv_heads, page_size, head_dim = geometry.kv_heads, geometry.page_size, geometry.head_dim
    dtype = stored_dtype(geometry.dtype)
    return [
        (
            jnp.zeros((pages, kv_heads, head_dim, page_size), dtype),
            jnp.zeros((pages, kv_heads, page_size, head_dim), dtype),
        )
        for _ in range(geometry.layers)
    ]
