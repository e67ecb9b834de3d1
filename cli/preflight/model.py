"""What a model is, found out without reading its weights."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from halfmoon.errors import ConfigError
from halfmoon.weights import open_checkpoint

if TYPE_CHECKING:
    from halfmoon.models.llama import LlamaConfig


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """`parameters` counts elements, `chats` says whether there is a chat template."""

    architecture: str
    parameters: int
    shape: "LlamaConfig"
    chats: bool


def inspect_model(path: Path) -> ModelFacts:
    """Opens everything of a model but the weights. Raises ModelError when it could not be served."""
    from halfmoon.models.registry import model_config
    from halfmoon.text import load_text_model

    checkpoint = open_checkpoint(path)
    shape = model_config(checkpoint.config)
    text = load_text_model(path)
    architectures = checkpoint.config.get("architectures") or [str(checkpoint.config.get("model_type"))]
    return ModelFacts(
        architecture=str(architectures[0]),
        parameters=sum(tensor.elements for tensor in checkpoint.tensors.values()),
        shape=shape,
        chats=text.chat is not None,
    )


def check_context(facts: ModelFacts, max_model_len: int | None) -> None:
    """Raises ConfigError when more context is asked for than the model was made for."""
    context = facts.shape.max_model_len
    if max_model_len is not None and max_model_len > context:
        raise ConfigError(f"--max-model-len {max_model_len} is more than the model's context of {context} tokens")
