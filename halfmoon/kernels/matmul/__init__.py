"""Products of weights, as they lie in checkpoints, with transposed activations."""

from jax import Array

from halfmoon.kernels.choice import all_float32, on_cpu
from halfmoon.kernels.matmul import native, xla

__all__ = ["matmul", "matmul_transposed"]


def matmul(x: Array, *weights: Array) -> tuple[Array, ...]:
    """W @ x [out, T] for each W [out, in], with x [in, T]."""
    if all_float32(x, *weights):
        return on_cpu(native.matmul, xla.matmul, x, *weights)
    return xla.matmul(x, *weights)


def matmul_transposed(x: Array, weight: Array) -> Array:
    """(W @ x)^T [T, out], in float32, of W [out, in] and x [in, T]."""
    if all_float32(x, weight):
        return on_cpu(native.matmul_transposed, xla.matmul_transposed, x, weight)
    return xla.matmul_transposed(x, weight)
