"""A checkpoint in memory, whose tensors and config a test can change one by one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.models.families import Weights, hf_config, make_weights


class MemoryCheckpoint:
    """The small model of a family, see `halfmoon.weights.checkpoint.Checkpoint`."""

    def __init__(self, family: str, **config: object) -> None:
        self.tensors: Weights = make_weights(family)
        self._config = hf_config(family) | config

    @property
    def path(self) -> Path:
        return Path("memory")

    @property
    def config(self) -> Mapping[str, Any]:
        return self._config

    @property
    def generation_config(self) -> Mapping[str, Any]:
        return {}

    @property
    def fingerprint(self) -> str:
        return "0" * 32

    def names(self) -> Sequence[str]:
        return list(self.tensors)

    def read(self, name: str) -> NDArray[np.float32]:
        return self.tensors[name]
