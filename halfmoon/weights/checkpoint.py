"""What every kind of model on disk looks like to the rest: a Hugging Face config and tensors by Hugging Face names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray


class Checkpoint(Protocol):
    """A model on disk, opened lazily. Tensors are read one at a time and never kept."""

    @property
    def path(self) -> Path:
        """The folder or file."""
        ...

    @property
    def config(self) -> Mapping[str, Any]:
        """The model's `config.json`; made from the metadata for a GGUF file."""
        ...

    @property
    def generation_config(self) -> Mapping[str, Any]:
        """The model's `generation_config.json`; empty where there is none."""
        ...

    @property
    def fingerprint(self) -> str:
        """32 hex digits that name architecture and weights; cheap: the tensors are not read."""
        ...

    def names(self) -> Sequence[str]:
        """Names of all tensors, as Hugging Face names them."""
        ...

    def read(self, name: str) -> NDArray[Any]:
        """One tensor in Hugging Face's row order: float32, float16 or bfloat16 as stored; quantised ones as float32."""
        ...


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor's header: Hugging Face's `shape`, the type as its file names it (`F32`, `Q4_1`), and bytes on disk."""

    shape: tuple[int, ...]
    stored_type: str
    nbytes: int

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)


class StoredCheckpoint(Checkpoint, Protocol):
    """A checkpoint that also tells what its files hold; what `open_checkpoint` returns."""

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Headers of all tensors by name."""
        ...

    @property
    def files(self) -> Sequence[Path]:
        """The files with weights, in the order of their names."""
        ...
