"""Which safetensors files make up a Hugging Face folder, and what they hold."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from halfmoon.errors import ModelError
from halfmoon.weights.checkpoint import TensorInfo

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_ELEMENT_BYTES = {"F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True, slots=True)
class ShardedTensors:
    """Headers of all tensors, and the file that holds each."""

    tensors: dict[str, TensorInfo]
    file_of: dict[str, Path]

    @property
    def files(self) -> Sequence[Path]:
        """The files in the order of their names."""
        return sorted(set(self.file_of.values()))


def scan_folder(folder: Path) -> ShardedTensors:
    """Read the headers of the folder's weights. Raises ModelError: missing or damaged shards, unsupported types."""
    index = folder / INDEX
    if not index.exists():
        path = _single_file(folder)
        tensors = _read_headers(path)
        return ShardedTensors(tensors, dict.fromkeys(tensors, path))
    placed = _read_index(index)
    missing = sorted({path.name for path in placed.values() if not path.is_file()})
    if missing:
        raise ModelError(f"{folder} lacks {len(missing)} of its shards ({_some(missing)}): download or copy them again")
    tensors = {}
    for path in sorted(set(placed.values())):
        tensors.update(_read_headers(path))
    absent = sorted(set(placed) - set(tensors))
    if absent:
        raise ModelError(f"{folder}: its shards lack tensors that {INDEX} names ({_some(absent)}): download them again")
    return ShardedTensors({name: tensors[name] for name in placed}, placed)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in the file. Raises ModelError when it cannot be read or is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ModelError(f"{path} is damaged ({error}): download or copy it again") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} holds no JSON object: download or copy it again")
    return content


def _single_file(folder: Path) -> Path:
    path = folder / SINGLE
    if path.is_file():
        return path
    found = sorted(folder.glob("*.safetensors"))
    if len(found) == 1:
        return found[0]
    if found:
        raise ModelError(f"{folder} holds {len(found)} safetensors files but no {INDEX}: add the index file")
    if any(folder.glob("*.bin")) or any(folder.glob("*.pth")):
        raise ModelError(f"{folder} holds PyTorch weights only: convert them to safetensors")
    raise ModelError(f"{folder} holds no weights ({SINGLE}): download or copy the model again")


def _read_index(index: Path) -> dict[str, Path]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelError(f"{index} holds no weight_map: download or copy it again")
    return {str(name): index.parent / str(file) for name, file in weight_map.items()}


def _read_headers(path: Path) -> dict[str, TensorInfo]:
    tensors = {}
    try:
        with safe_open(path, framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118 (the handle is no mapping)
                view = file.get_slice(name)
                tensors[name] = _info(path, name, str(view.get_dtype()), tuple(view.get_shape()))
    except SafetensorError as error:
        raise ModelError(f"{path} is damaged or truncated ({error}): download or copy it again") from error
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error
    return tensors


def _info(path: Path, name: str, kind: str, shape: tuple[int, ...]) -> TensorInfo:
    size = _ELEMENT_BYTES.get(kind)
    if size is None:
        supported = ", ".join(_ELEMENT_BYTES)
        raise ModelError(
            f"{path} holds tensor {name} in type {kind}, which is not supported; supported are {supported}"
        )
    info = TensorInfo(shape, kind, 0)
    return TensorInfo(shape, kind, info.elements * size)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
