"""Plain XLA."""

import jax.numpy as jnp
from jax import Array, lax


def matmul(x: Array, *weights: Array) -> tuple[Array, ...]:
    """W @ x [out, T] for each W [out, in], with x [in, T]."""
    return tuple(jnp.matmul(w, x) for w in weights)


def matmul_transposed(x: Array, weight: Array) -> Array:
    """(W @ x)^T [T, out], in float32, of W [out, in] and x [in, T].

    The barrier keeps XLA's CPU backend from merging the transpose into the product, which made it seven times slower.
    """
    return lax.optimization_barrier(jnp.matmul(weight, x, preferred_element_type=jnp.float32)).T
