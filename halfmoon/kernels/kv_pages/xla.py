"""Plain XLA. The caches of `scatter_pages` and `copy_page` are to be donated by the caller."""

import jax.numpy as jnp
from jax import Array, lax

from halfmoon.kernels.storage import from_stored, to_stored

Caches = list[tuple[Array, Array]]
"""One (K, V) pair a layer, see `halfmoon.kernels`."""


def gather_pages(caches: Caches, pages: Array) -> Array:
    """Pages [n] as blocks [n, layers, kv_heads, page_size, 2 * head_dim]."""
    layers = [jnp.concatenate([k[pages].swapaxes(2, 3), v[pages]], axis=-1) for k, v in caches]
    return from_stored(jnp.stack(layers, axis=1))


def scatter_pages(caches: Caches, pages: Array, blocks: Array) -> Caches:
    """Writes blocks [n, layers, kv_heads, page_size, 2 * head_dim] to pages [n]; page 0 takes padding."""
    head_dim = blocks.shape[-1] // 2
    stored = to_stored(blocks, caches[0][0].dtype)

    def write(layer: int, pair: tuple[Array, Array]) -> tuple[Array, Array]:
        def body(index: Array, pair: tuple[Array, Array]) -> tuple[Array, Array]:
            block = lax.dynamic_index_in_dim(stored, index, keepdims=False)[layer][None]
            place = (pages[index], 0, 0, 0)
            keys = lax.dynamic_update_slice(pair[0], block[..., :head_dim].swapaxes(2, 3), place)
            return keys, lax.dynamic_update_slice(pair[1], block[..., head_dim:], place)

        return lax.fori_loop(0, pages.shape[0], body, pair)

    return [write(layer, pair) for layer, pair in enumerate(caches)]


def copy_page(caches: Caches, source: Array, target: Array) -> Caches:
    """Copies one page of all layers."""

    def copy(cache: Array) -> Array:
        page = lax.dynamic_index_in_dim(cache, source)
        return lax.dynamic_update_slice(cache, page, (target, 0, 0, 0))

    return [(copy(k), copy(v)) for k, v in caches]
