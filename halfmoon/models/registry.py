"""Which family computes which architecture."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jax.typing import DTypeLike

from halfmoon.models.llama import Llama, LlamaConfig, load_llama
from halfmoon.models.llama.params import Progress
from halfmoon.weights.checkpoint import Checkpoint


def model_config(config: Mapping[str, Any]) -> LlamaConfig:
    """The dimensions of a supported model. Raises ModelError that names any other architecture."""
    return LlamaConfig.from_hf(config)


def load_model(checkpoint: Checkpoint, *, dtype: DTypeLike = jnp.float32, progress: Progress | None = None) -> Llama:
    """The checkpoint's model with its weights on the default device."""
    return load_llama(checkpoint, dtype=dtype, progress=progress)
