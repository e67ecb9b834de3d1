"""Plain XLA: a loop over rows, and inside it over blocks of keys with as many trips as the row is long."""

import jax
import jax.numpy as jnp
from jax import Array, lax

from halfmoon.kernels.attention_math import Softmax, softmax_add, softmax_finish, softmax_start
from halfmoon.kernels.paged_keys import pages_per_block, read_block
from halfmoon.kernels.storage import value_dtype


@jax.jit
def paged_decode(q: Array, k_pages: Array, v_pages: Array, tables: Array, lengths: Array) -> Array:
    """q [heads, head_dim, B] over the first lengths[b] positions of the pages in tables [B, max_pages].

    Returns [heads, head_dim, B]. lengths counts the new token, whose KV is already written; it is 1 or more. What lies
    in the pages beyond it has no effect, whatever it is.
    """
    heads, head_dim, _ = q.shape
    kv_heads, page_size = k_pages.shape[1], k_pages.shape[3]
    keys_per_block = pages_per_block(page_size) * page_size
    scale = head_dim**-0.5

    def row(inputs: tuple[Array, Array, Array]) -> Array:
        query, table, length = inputs
        query = (query * scale).reshape(kv_heads, heads // kv_heads, head_dim).astype(value_dtype(k_pages.dtype))

        def block(index: Array, state: Softmax) -> Softmax:
            keys, values = read_block(k_pages, v_pages, table, index, length)
            scores = jnp.einsum("kgd,kdt->kgt", query, keys, preferred_element_type=jnp.float32)
            visible = index * keys_per_block + jnp.arange(keys_per_block) < length
            return softmax_add(state, scores, visible, values)

        trips = (length + keys_per_block - 1) // keys_per_block
        state = lax.fori_loop(0, trips, block, softmax_start((kv_heads, heads // kv_heads), head_dim))
        return softmax_finish(state).reshape(heads, head_dim)

    out = lax.map(row, (jnp.moveaxis(q, 2, 0), tables, lengths))
    return jnp.moveaxis(out, 0, 2).astype(q.dtype)
