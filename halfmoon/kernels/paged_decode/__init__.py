"""Attention of one new token a sequence over its cached pages."""

from jax import Array

from halfmoon.kernels.choice import all_float32, on_cpu, whole_vectors
from halfmoon.kernels.paged_decode import native, xla

__all__ = ["paged_decode"]


def paged_decode(q: Array, k_pages: Array, v_pages: Array, tables: Array, lengths: Array) -> Array:
    """q [heads, head_dim, B] over the first lengths[b] positions of the pages in tables [B, max_pages].

    Returns [heads, head_dim, B]. lengths counts the new token, whose KV is already written; it is 1 or more. What lies
    in the pages beyond it has no effect, whatever it is.
    """
    arguments = (q, k_pages, v_pages, tables, lengths)
    if all_float32(q, k_pages, v_pages) and whole_vectors(*k_pages.shape[2:]):
        return on_cpu(native.paged_decode, xla.paged_decode, *arguments)
    return xla.paged_decode(*arguments)
