"""Writes a safetensors file one tensor at a time: the library's own writer needs all tensors of a file in memory."""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

DTYPES: Mapping[str, np.dtype[Any]] = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
"""numpy's types by the names that safetensors gives them."""

_ALIGNMENT = 8


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """A tensor to be written: its name, shape, and type as a key of DTYPES."""

    name: str
    shape: tuple[int, ...]
    type: str

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return int(np.prod(self.shape, dtype=np.int64)) * DTYPES[self.type].itemsize


def write_safetensors(path: Path, plan: Iterable[PlannedTensor], tensors: Iterable[NDArray[Any]]) -> None:
    """Write the planned tensors, taking their values from `tensors` in the same order and one at a time.

    Raises OSError when the disk is full, and ValueError when a tensor is not the planned one.
    """
    planned = list(plan)
    with path.open("wb") as file:
        file.write(_header(planned))
        for expected, tensor in zip(planned, tensors, strict=True):
            if tensor.shape != expected.shape or tensor.dtype != DTYPES[expected.type]:
                raise ValueError(f"{expected.name} is {tensor.dtype}{tensor.shape}, planned was {expected}")
            file.write(np.ascontiguousarray(tensor).view(np.uint8).data)
        file.flush()
        os.fsync(file.fileno())


def _header(planned: list[PlannedTensor]) -> bytes:
    """Length as 8 bytes, then JSON padded with blanks so that the values begin aligned."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for tensor in planned:
        end = offset + tensor.nbytes
        entries[tensor.name] = {"dtype": tensor.type, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
