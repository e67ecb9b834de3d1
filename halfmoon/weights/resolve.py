"""From what the user names to a path on disk."""

from pathlib import Path

from halfmoon.errors import ModelError
from halfmoon.weights.default_model import DEFAULT_MODEL, fetch_default_model
from halfmoon.weights.hub_name import HubName, parse_hub_name
from halfmoon.weights.progress import QUIET, Progress


def resolve_model(spec: str | None, *, revision: str | None = None, progress: Progress = QUIET) -> Path:
    """The absolute path of the model that `spec` names; None is the default model, fetched when it is not cached.

    A folder or file comes before a model of the same name on the Hugging Face hub. `revision` is a branch, tag or
    commit of a hub model, and comes before the one in `spec`. Only existence is checked here: `open_checkpoint` judges
    the content. Raises ModelError.
    """
    name = _hub_name(spec)
    if name is not None:
        from halfmoon.weights.hub import fetch_from_hub  # its library is slow to import

        return fetch_from_hub(HubName(name.repo, name.file, revision or name.revision), progress=progress).absolute()
    if revision is not None:
        raise ModelError(f"--revision {revision} is for models of the hub, and {spec or DEFAULT_MODEL.name} is none")
    if spec is None:
        return fetch_default_model(progress=progress)
    path = Path(spec).expanduser()
    if not spec or not path.exists():
        raise ModelError(
            f"model {spec!r} is neither a folder nor a file: give a Hugging Face folder (with config.json and "
            "*.safetensors), a GGUF file, the name of a hub model (org/name or org/name:FILE.gguf), or nothing for "
            f"the default ({DEFAULT_MODEL.name})"
        )
    return path.absolute()


def served_name(spec: str | None) -> str:
    """What clients call the model that `spec` names: its name on the hub, else that of its folder or file."""
    if spec is None:
        return DEFAULT_MODEL.name
    name = _hub_name(spec)
    return Path(spec).expanduser().absolute().name if name is None else name.repo


def _hub_name(spec: str | None) -> HubName | None:
    if spec is None or Path(spec).expanduser().exists():
        return None
    return parse_hub_name(spec)
