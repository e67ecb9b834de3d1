"""What a model is, found out without reading its weights."""

from dataclasses import dataclass
from pathlib import Path

from halfmoon.errors import ConfigError
from halfmoon.weights import open_checkpoint


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """`parameters` counts elements, `context` is in tokens, `chats` says whether there is a chat template."""

    path: Path
    architecture: str
    parameters: int
    context: int
    chats: bool


def inspect_model(path: Path) -> ModelFacts:
    """Opens everything of a model but the weights. Raises ModelError when it could not be served."""
    from halfmoon.models.registry import model_config
    from halfmoon.text import load_text_model

    checkpoint = open_checkpoint(path)
    config = model_config(checkpoint.config)
    text = load_text_model(path)
    architectures = checkpoint.config.get("architectures") or [str(checkpoint.config.get("model_type"))]
    return ModelFacts(
        path=path,
        architecture=str(architectures[0]),
        parameters=sum(tensor.elements for tensor in checkpoint.tensors.values()),
        context=config.max_model_len,
        chats=text.chat is not None,
    )


def check_context(facts: ModelFacts, max_model_len: int | None) -> None:
    """Raises ConfigError when more context is asked for than the model was made for."""
    if max_model_len is not None and max_model_len > facts.context:
        raise ConfigError(f"--max-model-len {max_model_len} is more than the model's context of {facts.context} tokens")
