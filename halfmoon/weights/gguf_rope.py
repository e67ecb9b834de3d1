"""The context extension of Llama 3, which GGUF files keep as a table of divisors instead of its parameters."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfmoon.weights.rope_scaling import Llama3Scaling

ROPE_FREQS = "rope_freqs.weight"
_LOW, _HIGH, _ORIGINAL_CONTEXT = 1.0, 4.0, 8192


def llama3_scaling(divisors: NDArray[np.float32], theta: float) -> dict[str, Any] | None:
    """The `rope_scaling` of a Hugging Face config that gives these `divisors` [head_dim / 2] of the frequencies.

    None when they are not those of Llama 3: each of its models uses the same bounds and differs in the factor alone.
    """
    factor = float(divisors.max())
    candidate = Llama3Scaling(factor, _LOW, _HIGH, _ORIGINAL_CONTEXT)
    if not np.allclose(candidate.divisors(theta, len(divisors)), divisors, rtol=1e-4):
        return None
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": _LOW,
        "high_freq_factor": _HIGH,
        "original_max_position_embeddings": _ORIGINAL_CONTEXT,
    }
