"""Reads one tensor of a GGUF file, dequantised."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from gguf.constants import GGMLQuantizationType as Type
from gguf.quants import dequantize
from numpy.typing import NDArray

from halfmoon.errors import ModelError
from halfmoon.weights.gguf_header import GgufTensor

_PLAIN = {Type.F32: np.dtype(np.float32), Type.F16: np.dtype(np.float16), Type.BF16: np.dtype(ml_dtypes.bfloat16)}
_QUANTISED = (
    Type.Q4_0,
    Type.Q4_1,
    Type.Q5_0,
    Type.Q5_1,
    Type.Q8_0,
    Type.Q2_K,
    Type.Q3_K,
    Type.Q4_K,
    Type.Q5_K,
    Type.Q6_K,
)
_PIECE_BYTES = 4 << 20


def check_type(path: Path, name: str, info: GgufTensor) -> None:
    """Raise a ModelError that names the tensor and its type, unless it can be read."""
    if info.type not in _PLAIN and info.type not in _QUANTISED:
        supported = ", ".join(kind.name for kind in (*_PLAIN, *_QUANTISED))
        raise ModelError(
            f"{path} holds tensor {name} in type {info.type.name}, which is not supported: "
            f"use a GGUF of the model with the types {supported}"
        )


def read_tensor(path: Path, info: GgufTensor) -> NDArray[Any]:
    """The tensor as a new array of `info.shape`: plain types as they are, quantised ones as float32. Raises OSError."""
    stored = np.memmap(path, mode="r", offset=info.offset, shape=(info.nbytes,), dtype=np.uint8)
    dtype = _PLAIN.get(info.type)
    if dtype is None:
        return _dequantise(np.asarray(stored).reshape((*info.shape[:-1], -1)), info)
    plain: NDArray[Any] = np.array(stored, subok=False).view(dtype)
    return plain.reshape(info.shape)


def _dequantise(stored: NDArray[np.uint8], info: GgufTensor) -> NDArray[np.float32]:
    """A few MiB at a time, so that the package's intermediate arrays stay small beside the tensor."""
    rows = stored.reshape(-1, stored.shape[-1])
    result = np.empty((len(rows), info.shape[-1]), np.float32)
    step = max(1, _PIECE_BYTES // result[:1].nbytes)
    for first in range(0, len(rows), step):
        result[first : first + step] = dequantize(rows[first : first + step], info.type)
    return result.reshape(info.shape)
