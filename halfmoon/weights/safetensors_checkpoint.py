"""A Hugging Face folder of safetensors files as a checkpoint."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 (gives numpy the bfloat16 that safetensors looks up)
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from halfmoon.errors import ModelError
from halfmoon.weights.architectures import architecture_of
from halfmoon.weights.checkpoint import TensorInfo
from halfmoon.weights.fingerprint import fingerprint
from halfmoon.weights.layout import check_layout
from halfmoon.weights.safetensors_files import read_json, scan_folder


class SafetensorsCheckpoint:
    """An opened folder; the files are mapped anew for each tensor, so nothing stays open in between."""

    def __init__(self, folder: Path) -> None:
        """Read and check config and headers. Raises ModelError."""
        self._path = folder
        self._config = read_config(folder)
        self._shards = scan_folder(folder)
        check_layout(folder, self._config, self.tensors)

    @property
    def path(self) -> Path:
        """The folder."""
        return self._path

    @property
    def config(self) -> Mapping[str, Any]:
        """The content of `config.json`."""
        return self._config

    @cached_property
    def generation_config(self) -> Mapping[str, Any]:
        """The content of `generation_config.json`; empty when there is none."""
        path = self._path / "generation_config.json"
        return read_json(path) if path.exists() else {}

    @cached_property
    def fingerprint(self) -> str:
        """32 hex digits of config, headers, sizes and a sample of the bytes."""
        return fingerprint(self._config, self.tensors, self.files)

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Headers of all tensors by name."""
        return self._shards.tensors

    @property
    def files(self) -> Sequence[Path]:
        """The safetensors files."""
        return self._shards.files

    def names(self) -> Sequence[str]:
        """Names of all tensors, file by file."""
        return tuple(self._shards.tensors)

    def read(self, name: str) -> NDArray[Any]:
        """One tensor as stored. Raises ModelError for an unknown name or an unreadable file."""
        path = self._shards.file_of.get(name)
        if path is None:
            raise ModelError(f"{self._path} has no tensor {name}")
        try:
            with safe_open(path, framework="numpy") as file:
                tensor: NDArray[Any] = file.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise ModelError(f"cannot read {name} from {path} ({error}): it changed since it was opened") from error
        return tensor


def read_config(folder: Path) -> dict[str, Any]:
    """The content of the folder's `config.json`. Raises ModelError where it is missing or of a kind not supported."""
    path = folder / "config.json"
    if not path.exists():
        raise ModelError(_why_no_config(folder))
    config = read_json(path)
    quantisation = config.get("quantization_config")
    if quantisation:
        method = quantisation.get("quant_method", "unknown") if isinstance(quantisation, dict) else "unknown"
        raise ModelError(
            f"{folder} is quantised by {method}, which is not supported: use the original weights or a GGUF"
        )
    architecture_of(config)
    return config


def _why_no_config(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir())
    if not names:
        return f"{folder} is empty: give a Hugging Face folder (config.json and *.safetensors) or a GGUF file"
    for name in names:
        if name.endswith(".gguf"):
            return f"{folder} holds no config.json, but {name}: give that file"
    return f"{folder} holds no config.json: give a Hugging Face folder (config.json and *.safetensors) or a GGUF file"
