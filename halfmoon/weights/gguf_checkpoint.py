"""A GGUF file as a checkpoint: Hugging Face names, shapes, row order and config."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfmoon.errors import ModelError
from halfmoon.weights.checkpoint import TensorInfo
from halfmoon.weights.fingerprint import fingerprint
from halfmoon.weights.gguf_config import config_from_gguf, generation_config_from_gguf, gguf_architecture
from halfmoon.weights.gguf_header import GgufHeader, GgufTensor, MetadataValue, read_gguf_header
from halfmoon.weights.gguf_names import deinterleave_rows, hugging_face_name, rotated_projection
from halfmoon.weights.gguf_rope import ROPE_FREQS, llama3_scaling
from halfmoon.weights.gguf_tensors import check_type, read_tensor
from halfmoon.weights.layout import check_layout, kv_heads


class GgufCheckpoint:
    """An opened GGUF file; `metadata` holds all of its key-value pairs, the tokenizer's among them."""

    def __init__(self, path: Path) -> None:
        """Read and check the header. Raises ModelError."""
        header = read_gguf_header(path)
        self._architecture = gguf_architecture(path, header)
        self._path = path
        self._header = header
        self._stored = _by_hugging_face_name(path, header)
        self._config = config_from_gguf(path, header)
        self._add_rope_scaling()
        check_layout(path, self._config, self.tensors)

    @property
    def path(self) -> Path:
        """The GGUF file."""
        return self._path

    @property
    def metadata(self) -> Mapping[str, MetadataValue]:
        """GGUF's key-value pairs."""
        return self._header.metadata

    @property
    def config(self) -> Mapping[str, Any]:
        """The `config.json` made from the metadata."""
        return self._config

    @property
    def generation_config(self) -> Mapping[str, Any]:
        """End tokens and sampling defaults, as far as the metadata name them."""
        return generation_config_from_gguf(self._header)

    @cached_property
    def fingerprint(self) -> str:
        """32 hex digits of config, headers, size and a sample of the bytes."""
        return fingerprint(self._config, self.tensors, self.files)

    @cached_property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Headers of all tensors by Hugging Face name."""
        return {name: TensorInfo(info.shape, info.type.name, info.nbytes) for name, info in self._stored.items()}

    @property
    def files(self) -> Sequence[Path]:
        """The file itself."""
        return (self._path,)

    def names(self) -> Sequence[str]:
        """Hugging Face names of all tensors, in the file's order."""
        return tuple(self._stored)

    def read(self, name: str) -> NDArray[Any]:
        """One tensor in Hugging Face's row order. Raises ModelError for an unknown name or an unreadable file."""
        info = self._stored.get(name)
        if info is None:
            raise ModelError(f"{self._path} has no tensor {name}")
        tensor = self._read(info)
        projection = rotated_projection(name)
        if projection is None or not self._architecture.interleaved_in_gguf:
            return tensor
        heads = int(self._config["num_attention_heads"]) if projection == "q" else kv_heads(self._config)
        return deinterleave_rows(tensor, heads)

    def _read(self, info: GgufTensor) -> NDArray[Any]:
        try:
            return read_tensor(self._path, info)
        except (OSError, ValueError) as error:  # numpy reports a file that has shrunk as ValueError
            raise ModelError(f"cannot read {self._path} ({error}): it changed since it was opened") from error

    def _add_rope_scaling(self) -> None:
        info = self._header.tensors.get(ROPE_FREQS)
        if info is None:
            return
        scaling = llama3_scaling(self._read(info).astype(np.float32), self._config["rope_theta"])
        if scaling is None:
            raise ModelError(f"{self._path} has a {ROPE_FREQS} that is not Llama 3's, which is not supported")
        self._config["rope_scaling"] = scaling


def _by_hugging_face_name(path: Path, header: GgufHeader) -> dict[str, GgufTensor]:
    stored = {}
    for name, info in header.tensors.items():
        check_type(path, name, info)
        if name == ROPE_FREQS:
            continue
        known = hugging_face_name(name)
        if known is None:
            raise ModelError(f"{path} holds the tensor {name}, which no supported architecture has")
        stored[known] = info
    return stored
