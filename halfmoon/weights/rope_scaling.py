"""How a model's config stretches the rotary embedding to longer contexts."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfmoon.errors import ModelError


def rope_frequencies(theta: float, half: int) -> NDArray[np.float64]:
    """Radians a position of each rotated pair [half], before any scaling."""
    frequencies: NDArray[np.float64] = theta ** (-np.arange(half, dtype=np.float64) / half)
    return frequencies


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """All positions lie `factor` times closer together."""

    factor: float

    def divisors(self, theta: float, half: int) -> NDArray[np.float64]:
        """What to divide each of the frequencies [half] by."""
        del theta
        return np.full(half, self.factor)


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Long wavelengths are stretched by `factor`, short ones kept.

    A pair counts as long when it turns less than `low` times, and as short when it turns more than `high` times,
    within `original_context` tokens; in between the stretch fades.
    """

    factor: float
    low: float
    high: float
    original_context: int

    def divisors(self, theta: float, half: int) -> NDArray[np.float64]:
        """What to divide each of the frequencies [half] by."""
        turns = self.original_context * rope_frequencies(theta, half) / (2 * math.pi)
        share = np.clip((turns - self.low) / (self.high - self.low), 0.0, 1.0)
        divisors: NDArray[np.float64] = 1.0 / ((1.0 - share) / self.factor + share)
        return divisors


RopeScaling = LinearScaling | Llama3Scaling


def rope_scaling(config: Mapping[str, Any]) -> RopeScaling | None:
    """The scaling that a Hugging Face config asks for; None for none. Raises ModelError for an unsupported kind."""
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    match kind:
        case "default":
            return None
        case "linear":
            return LinearScaling(_positive(scaling, "factor"))
        case "llama3":
            return _llama3(scaling)
        case _:
            raise ModelError(f"RoPE scaling of type {kind!r} is not supported; supported: default, linear, llama3")


def _llama3(scaling: Mapping[str, Any]) -> Llama3Scaling:
    low, high = _positive(scaling, "low_freq_factor"), _positive(scaling, "high_freq_factor")
    if low >= high:
        raise ModelError(
            f"the config's RoPE scaling has low_freq_factor {low} and high_freq_factor {high}: use another"
        )
    context = int(_positive(scaling, "original_max_position_embeddings"))
    return Llama3Scaling(_positive(scaling, "factor"), low, high, context)


def _positive(scaling: Mapping[str, Any], key: str) -> float:
    value = scaling.get(key)
    if not isinstance(value, int | float) or value <= 0:
        raise ModelError(f"the config's RoPE scaling lacks a sound {key}: use the config.json of the model")
    return float(value)
