"""New keys and values into their pages, in place."""

from jax import Array

from halfmoon.kernels.choice import all_float32, on_cpu
from halfmoon.kernels.kv_write import native, xla

__all__ = ["write_runs", "write_tokens"]


def write_tokens(k_pages: Array, v_pages: Array, k: Array, v: Array, pages: Array, slots: Array) -> tuple[Array, Array]:
    """One token a row: k, v [kv, head_dim, B] go to page `pages[b]`, slot `slots[b]`."""
    arguments = (k_pages, v_pages, k, v, pages, slots)
    if all_float32(k_pages, v_pages, k, v):
        return on_cpu(native.write_runs, xla.write_tokens, *arguments)
    return xla.write_tokens(*arguments)


def write_runs(k_pages: Array, v_pages: Array, k: Array, v: Array, pages: Array, slots: Array) -> tuple[Array, Array]:
    """Runs of equal length that do not cross a page: k, v [kv, head_dim, N * run]; run n starts at `slots[n]`."""
    arguments = (k_pages, v_pages, k, v, pages, slots)
    if all_float32(k_pages, v_pages, k, v):
        return on_cpu(native.write_runs, xla.write_runs, *arguments)
    return xla.write_runs(*arguments)
