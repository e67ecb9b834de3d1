"""Opens whatever kind of model a path leads to."""

from pathlib import Path

from halfmoon.errors import ModelError
from halfmoon.weights.checkpoint import StoredCheckpoint
from halfmoon.weights.gguf_checkpoint import GgufCheckpoint
from halfmoon.weights.safetensors_checkpoint import SafetensorsCheckpoint


def open_checkpoint(path: Path) -> StoredCheckpoint:
    """The model at `path`, a Hugging Face folder of safetensors or a GGUF file, with its headers read and checked.

    Tensors are read later, one by one. Raises ModelError, in one line that says what to do: missing, damaged,
    truncated or incomplete files, tensors that do not fit the config, an unsupported architecture or tensor type.
    """
    try:
        if path.is_dir():
            return SafetensorsCheckpoint(path)
        if not path.exists():
            raise ModelError(f"{path} does not exist: give a Hugging Face folder or a GGUF file")
        if path.suffix == ".safetensors":
            raise ModelError(f"{path} is one file of a model: give its folder, {path.parent}")
        return GgufCheckpoint(path)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error
