"""Plain XLA: a loop over runs of queries, and inside it over blocks of keys up to the run's own: block-causal."""

import jax
import jax.numpy as jnp
from jax import Array, lax

from halfmoon.kernels.attention_math import Softmax, softmax_add, softmax_finish, softmax_start
from halfmoon.kernels.paged_keys import pages_per_block, read_block
from halfmoon.kernels.storage import value_dtype


@jax.jit
def chunked_prefill(q: Array, k_pages: Array, v_pages: Array, tables: Array, starts: Array) -> Array:
    """q [heads, head_dim, N * run]: run n holds positions starts[n].. of the sequence with pages tables[n].

    Returns [heads, head_dim, N * run]. Keys and values of the runs are already written to their pages; what lies in the
    pages beyond a run has no effect, whatever it is.
    """
    heads, head_dim, tokens = q.shape
    kv_heads, page_size = k_pages.shape[1], k_pages.shape[3]
    runs = starts.shape[0]
    length, group = tokens // runs, heads // kv_heads
    keys_per_block = pages_per_block(page_size) * page_size
    queries = (q * head_dim**-0.5).reshape(kv_heads, group, head_dim, runs, length).astype(value_dtype(k_pages.dtype))

    def run(inputs: tuple[Array, Array, Array]) -> Array:
        query, table, start = inputs  # [kv, group * length, head_dim]
        position = start + jnp.tile(jnp.arange(length), group)[:, None]
        end = start + length

        def block(index: Array, state: Softmax) -> Softmax:
            keys, values = read_block(k_pages, v_pages, table, index, end)
            scores = jnp.einsum("krd,kdt->krt", query, keys, preferred_element_type=jnp.float32)
            visible = index * keys_per_block + jnp.arange(keys_per_block) <= position
            return softmax_add(state, scores, visible, values)

        trips = (end + keys_per_block - 1) // keys_per_block
        return softmax_finish(lax.fori_loop(0, trips, block, softmax_start((kv_heads, group * length), head_dim)))

    rows = queries.transpose(3, 0, 1, 4, 2).reshape(runs, kv_heads, group * length, head_dim)
    out = lax.map(run, (rows, tables, starts)).reshape(runs, kv_heads, group, length, head_dim)
    return out.transpose(1, 2, 4, 0, 3).reshape(heads, head_dim, tokens).astype(q.dtype)
