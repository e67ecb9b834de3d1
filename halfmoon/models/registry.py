"""Which family computes which architecture."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jax.typing import DTypeLike

from halfmoon.errors import ModelError
from halfmoon.models.llama import Llama, LlamaConfig, load_llama
from halfmoon.models.llama.params import Progress
from halfmoon.weights.checkpoint import Checkpoint

_LLAMA_FAMILY = ("llama", "qwen2", "qwen3")


def model_config(config: Mapping[str, Any]) -> LlamaConfig:
    """The dimensions of a supported model. Raises ModelError that names any other architecture."""
    model_type = config.get("model_type")
    if model_type not in _LLAMA_FAMILY:
        named = ", ".join(config.get("architectures") or []) or model_type
        raise ModelError(f"architecture {named} is not supported; supported model types: {', '.join(_LLAMA_FAMILY)}")
    return LlamaConfig.from_hf(config)


def load_model(checkpoint: Checkpoint, *, dtype: DTypeLike = jnp.float32, progress: Progress | None = None) -> Llama:
    """The checkpoint's model with its weights on the default device."""
    model_config(checkpoint.config)
    return load_llama(checkpoint, dtype=dtype, progress=progress)
