"""The context extension of Llama 3, which GGUF files keep as a table of divisors instead of its parameters."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROPE_FREQS = "rope_freqs.weight"
_LOW, _HIGH, _ORIGINAL_CONTEXT = 1.0, 4.0, 8192


def llama3_scaling(divisors: NDArray[np.float32], theta: float) -> dict[str, Any] | None:
    """The `rope_scaling` of a Hugging Face config that gives these `divisors` [head_dim / 2] of the frequencies.

    None when they are not those of Llama 3: each of its models uses the same bounds and differs in the factor alone.
    """
    factor = float(divisors.max())
    if not np.allclose(_divisors(factor, theta, len(divisors)), divisors, rtol=1e-4):
        return None
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": _LOW,
        "high_freq_factor": _HIGH,
        "original_max_position_embeddings": _ORIGINAL_CONTEXT,
    }


def _divisors(factor: float, theta: float, half: int) -> NDArray[np.float64]:
    """1 for short wavelengths, `factor` for long ones, and in between a share that grows with 1 / wavelength."""
    frequency = theta ** (-np.arange(half, dtype=np.float64) / half)
    turns = _ORIGINAL_CONTEXT * frequency / (2 * math.pi)
    share = np.clip((turns - _LOW) / (_HIGH - _LOW), 0.0, 1.0)
    divisors: NDArray[np.float64] = 1.0 / ((1.0 - share) / factor + share)
    return divisors
