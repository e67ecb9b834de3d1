"""Gumbel noise of single tokens: any subset of the vocabulary can be asked, and each token gets the same value."""

import math

import jax
import jax.numpy as jnp
from jax import Array

LARGEST_NOISE = 16.7
"""No token's noise exceeds it: -log(-log(1 - 2**-24)) is 16.64."""

_GOLDEN = 0x9E3779B9
_STEP = 2.0**-23
_LEAST = math.ldexp(1.0, -24)


def row_keys(seeds: Array, choices: Array, positions: Array) -> Array:
    """uint32 [B, 2] out of seeds [B, 2], choices [B] and positions [B]."""

    def fold(seed: Array, choice: Array, position: Array) -> Array:
        key = jax.random.wrap_key_data(seed, impl="threefry2x32")
        return jax.random.key_data(jax.random.fold_in(jax.random.fold_in(key, choice), position))

    keys: Array = jax.vmap(fold)(seeds, choices, positions)
    return keys


def gumbel(keys: Array, ids: Array) -> Array:
    """float32 [B, N]: the noise of token ids [B, N] or [1, N] under keys [B, 2]."""
    bits = ids.astype(jnp.uint32) * jnp.uint32(_GOLDEN) + keys[:, :1]
    bits = _mix(_mix(bits) ^ keys[:, 1:])
    uniform = (bits >> 9).astype(jnp.int32).astype(jnp.float32) * _STEP + _LEAST  # never 0, never 1
    return -jnp.log(-jnp.log(uniform))


def _mix(bits: Array) -> Array:
    """A bijection of uint32 in which each bit of the argument flips each bit of the result half of the time."""
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x7FEB352D)
    bits = (bits ^ (bits >> 15)) * jnp.uint32(0x846CA68B)
    return bits ^ (bits >> 16)
