"""Which implementation of an operation runs: kernels of our own on the CPU where they fit, plain XLA elsewhere."""

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from halfmoon.native.machine import interface_known, processor, vectors

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


class _Chosen:
    kernels = "auto"


def choose_kernels(kernels: str) -> None:
    """ "auto", or "xla" for plain XLA everywhere; holds for programs that are compiled from then on."""
    _Chosen.kernels = kernels


def describe_kernels() -> str:
    """What runs on this machine, for the log."""
    if jax.default_backend() != "cpu" or _Chosen.kernels == "xla":
        return "plain XLA"
    if not interface_known():
        return "plain XLA, slower than need be: this version of jaxlib calls kernels in another way"
    return f"compiled for {processor()}: {vectors().lanes} lanes of float32"


def all_float32(*arrays: Array) -> bool:
    """Whether the CPU kernels may and can compute with these arrays."""
    return _Chosen.kernels == "auto" and interface_known() and all(each.dtype == jnp.float32 for each in arrays)


def whole_vectors(*sizes: int) -> bool:
    """Whether lines of these lengths are whole vectors of this processor."""
    return all(size % vectors().lanes == 0 for size in sizes)


def on_cpu(
    native: Callable[[*Arguments], Result], plain: Callable[[*Arguments], Result], *arguments: *Arguments
) -> Result:
    """Calls `native` in programs for the CPU and `plain` in those for other devices, whatever this machine has."""
    result: Result = lax.platform_dependent(*arguments, cpu=native, default=plain)
    return result
