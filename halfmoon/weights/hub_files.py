"""Which files of a repository on the hub are needed to serve its model."""

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase

from halfmoon.errors import ModelError
from halfmoon.weights.hub_name import HubName
from halfmoon.weights.safetensors_files import INDEX, SINGLE

_WEIGHTS = (SINGLE, "model-*.safetensors")
_TEXTS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)
_SHOWN = 6


def needed_files(name: HubName, files: Collection[str]) -> list[str]:
    """Those of the repository's `files` that serving needs. Raises ModelError where they do not suffice."""
    if name.file is not None:
        return [_chosen_file(name, name.file, files)]
    weights = [INDEX] if INDEX in files else []
    weights += sorted(file for file in files if any(fnmatchcase(file, pattern) for pattern in _WEIGHTS))
    if INDEX in files and SINGLE in weights:
        weights.remove(SINGLE)  # the same weights once more
    if "config.json" not in files or not weights:
        raise ModelError(f"{name} holds {_why_unusable(name, files)}")
    if "tokenizer.json" not in files:
        raise ModelError(f"{name} holds no tokenizer.json, which serving needs: use another upload of the model")
    return [*(file for file in _TEXTS if file in files), *weights]


def _chosen_file(name: HubName, file: str, files: Collection[str]) -> str:
    if file not in files:
        raise ModelError(f"{name.repo} has no file {file}: it has {_listed(_gguf(files)) or 'no GGUF files'}")
    return file


def _why_unusable(name: HubName, files: Collection[str]) -> str:
    if gguf := _gguf(files):
        return f"GGUF files: name one of them, like {name.repo}:{gguf[0]} (there are {_listed(gguf)})"
    if any(file.endswith((".bin", ".pth", ".pt")) for file in files):
        return "PyTorch weights only: use a model with safetensors or GGUF files"
    return "neither safetensors with a config.json nor GGUF files: use another model"


def _gguf(files: Collection[str]) -> Sequence[str]:
    return sorted(file for file in files if file.endswith(".gguf"))


def _listed(files: Sequence[str]) -> str:
    return ", ".join(files[:_SHOWN]) + (f" and {len(files) - _SHOWN} more" if len(files) > _SHOWN else "")
