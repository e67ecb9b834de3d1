"""A hash of each block's bits, computed where the block lies: both ends compare 64 bits instead of the bytes.

It finds corruption, not tampering. Each word is mixed with its place in the block, and the results are added up, which
comes out the same however a block is shared out over devices.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

_LANES = ((0x9E3779B1, 0x2545F491), (0x85EBCA77, 0x68E31DA4))
"""An odd factor for the place and an offset, for each of two independent halves of the hash."""


@jax.jit
def hash_blocks(blocks: Array) -> Array:
    """Blocks [n, ...] of any type as uint32 [n, 2]: the two halves of each block's hash."""
    bits = lax.bitcast_convert_type(blocks, _unsigned(blocks.dtype)).astype(jnp.uint32)
    places = _places(blocks.shape)
    axes = tuple(range(1, blocks.ndim))
    halves = [
        jnp.sum(_mix(bits ^ (places * jnp.uint32(factor) + jnp.uint32(offset))), axis=axes, dtype=jnp.uint32)
        for factor, offset in _LANES
    ]
    return jnp.stack(halves, axis=1)


def hash_values(blocks: Array) -> list[int]:
    """The hash of each of blocks [n, ...] as an unsigned 64-bit number. Waits for the device."""
    halves = np.asarray(hash_blocks(blocks)).astype(np.uint64)
    return [int(low) | int(high) << 32 for low, high in halves]


def _unsigned(dtype: jnp.dtype) -> jnp.dtype:
    return jnp.dtype(f"uint{8 * dtype.itemsize}")


def _places(shape: tuple[int, ...]) -> Array:
    """Number of each element within its block, by axes: a flat one would not stay shared out over devices."""
    places, stride = jnp.zeros((1,) * len(shape), jnp.uint32), 1
    for axis in range(len(shape) - 1, 0, -1):
        along = lax.broadcasted_iota(jnp.uint32, tuple(n if at == axis else 1 for at, n in enumerate(shape)), axis)
        places = places + along * jnp.uint32(stride)
        stride *= shape[axis]
    return places


def _mix(words: Array) -> Array:
    """Spreads every bit of a word over all of it (the finaliser of MurmurHash3)."""
    words = (words ^ (words >> 16)) * jnp.uint32(0x85EBCA6B)
    words = (words ^ (words >> 13)) * jnp.uint32(0xC2B2AE35)
    return words ^ (words >> 16)
