"""How values lie in the caches.

XLA's CPU backend has no updates in bfloat16: it would convert a whole cache to float32 and back in every step. There,
bfloat16 is kept as its bit patterns, uint16. Elsewhere, and for all other types, values lie as they are.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import DTypeLike


def stored_dtype(dtype: DTypeLike) -> jnp.dtype:
    """The type of the cache arrays that keep values of type `dtype` on the default backend."""
    bits = jnp.dtype(dtype) == jnp.bfloat16 and jax.default_backend() == "cpu"
    return jnp.dtype(jnp.uint16 if bits else dtype)


def value_dtype(stored: DTypeLike) -> jnp.dtype:
    """The type of the values that cache arrays of type `stored` keep."""
    return jnp.dtype(jnp.bfloat16 if stored == jnp.uint16 else stored)


def to_stored(values: Array, stored: DTypeLike) -> Array:
    """Values as they lie in cache arrays of type `stored`."""
    cast = values.astype(value_dtype(stored))
    return lax.bitcast_convert_type(cast, jnp.uint16) if stored == jnp.uint16 else cast


def from_stored(part: Array) -> Array:
    """The values of a part of a cache."""
    return lax.bitcast_convert_type(part, jnp.bfloat16) if part.dtype == jnp.uint16 else part
