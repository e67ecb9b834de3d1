"""From what the user names to a path on disk."""

from pathlib import Path

from halfmoon.errors import ModelError
from halfmoon.weights.default_model import DEFAULT_MODEL, fetch_default_model
from halfmoon.weights.progress import QUIET, Progress


def resolve_model(spec: str | None, *, progress: Progress = QUIET) -> Path:
    """The absolute path of the model that `spec` names; None is the default model, fetched when it is not cached.

    Only existence is checked here: `open_checkpoint` judges the content. Raises ModelError.
    """
    if spec is None:
        return fetch_default_model(progress=progress)
    path = Path(spec).expanduser()
    if not spec or not path.exists():
        raise ModelError(
            f"model {spec!r} is neither a folder nor a file: give a Hugging Face folder (with config.json and "
            f"*.safetensors), a GGUF file, or nothing for the default ({DEFAULT_MODEL.name})"
        )
    return path.absolute()
