"""Reading a run of a sequence's pages as one block of keys and values."""

import jax.numpy as jnp
from jax import Array, lax

from halfmoon.kernels.storage import from_stored

KEYS_PER_BLOCK = 128
"""Keys per step of the attention loops: below it the loop costs more than the work."""


def pages_per_block(page_size: int) -> int:
    """Pages that make one block of keys."""
    return max(1, KEYS_PER_BLOCK // page_size)


def read_block(k_pages: Array, v_pages: Array, table: Array, block: Array, end: Array) -> tuple[Array, Array]:
    """Block number `block` of the sequence with page table `table`: K [kv, head_dim, keys], V [kv, keys, head_dim].

    Positions from `end` on may hold anything, also NaN: their values read as 0, their scores are the caller's to mask.
    Entries past the end of the table repeat its last page.
    """
    page_size = k_pages.shape[-1]
    count = pages_per_block(page_size)
    pages = [table[jnp.minimum(block * count + i, table.shape[0] - 1)] for i in range(count)]
    keys = [lax.dynamic_index_in_dim(k_pages, page, keepdims=False) for page in pages]
    values = [lax.dynamic_index_in_dim(v_pages, page, keepdims=False) for page in pages]
    positions = block * count * page_size + jnp.arange(count * page_size)
    written = jnp.where(positions[:, None] < end, jnp.concatenate(values, axis=-2), 0)
    return from_stored(jnp.concatenate(keys, axis=-1)), from_stored(written)
