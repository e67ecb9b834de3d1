"""Causal attention of runs of new tokens over their sequences' cached pages."""

from jax import Array

from halfmoon.kernels.choice import all_float32, on_cpu, whole_vectors
from halfmoon.kernels.chunked_prefill import native, xla

__all__ = ["chunked_prefill"]


def chunked_prefill(q: Array, k_pages: Array, v_pages: Array, tables: Array, starts: Array) -> Array:
    """q [heads, head_dim, N * run]: run n holds positions starts[n].. of the sequence with pages tables[n].

    Returns [heads, head_dim, N * run]. Keys and values of the runs are already written to their pages; what lies in the
    pages beyond a run has no effect, whatever it is.
    """
    arguments = (q, k_pages, v_pages, tables, starts)
    if all_float32(q, k_pages, v_pages) and whole_vectors(*k_pages.shape[2:]):
        return on_cpu(native.chunked_prefill, xla.chunked_prefill, *arguments)
    return xla.chunked_prefill(*arguments)
