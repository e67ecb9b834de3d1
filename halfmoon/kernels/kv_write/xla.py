"""Plain XLA: loops of in-place updates. A scatter would copy or transpose the whole cache for some batch sizes."""

import jax
from jax import Array, lax

from halfmoon.kernels.storage import to_stored


@jax.jit
def write_tokens(k_pages: Array, v_pages: Array, k: Array, v: Array, pages: Array, slots: Array) -> tuple[Array, Array]:
    """One token a row: k, v [kv, head_dim, B] go to page `pages[b]`, slot `slots[b]`."""

    def body(row: Array, caches: tuple[Array, Array]) -> tuple[Array, Array]:
        key = lax.dynamic_index_in_dim(k, row, axis=2)[None]  # [1, kv, head_dim, 1]
        value = lax.dynamic_index_in_dim(v, row, axis=2, keepdims=False)[None, :, None, :]
        return (
            lax.dynamic_update_slice(caches[0], to_stored(key, k_pages.dtype), (pages[row], 0, 0, slots[row])),
            lax.dynamic_update_slice(caches[1], to_stored(value, v_pages.dtype), (pages[row], 0, slots[row], 0)),
        )

    return lax.fori_loop(0, pages.shape[0], body, (k_pages, v_pages))


@jax.jit
def write_runs(k_pages: Array, v_pages: Array, k: Array, v: Array, pages: Array, slots: Array) -> tuple[Array, Array]:
    """Runs of equal length that do not cross a page: k, v [kv, head_dim, N * run]; run n starts at `slots[n]`."""
    runs = pages.shape[0]
    length = k.shape[-1] // runs

    def body(run: Array, caches: tuple[Array, Array]) -> tuple[Array, Array]:
        keys = lax.dynamic_slice_in_dim(k, run * length, length, axis=2)[None]
        values = lax.dynamic_slice_in_dim(v, run * length, length, axis=2).swapaxes(1, 2)[None]
        return (
            lax.dynamic_update_slice(caches[0], to_stored(keys, k_pages.dtype), (pages[run], 0, 0, slots[run])),
            lax.dynamic_update_slice(caches[1], to_stored(values, v_pages.dtype), (pages[run], 0, slots[run], 0)),
        )

    return lax.fori_loop(0, runs, body, (k_pages, v_pages))
