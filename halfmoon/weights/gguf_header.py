"""The header of a GGUF file: metadata and the table of tensors.

The `gguf` package's own reader makes two array objects of every string of the vocabulary, which takes seconds, and it
follows damaged counts for ever. This one reads the same layout in tenths of a second and checks every length before
it believes it; types and block sizes are the package's.
"""

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path

from gguf.constants import GGML_QUANT_SIZES, GGUF_DEFAULT_ALIGNMENT, GGMLQuantizationType, GGUFValueType

from halfmoon.errors import ModelError

MetadataValue = str | int | float | bool | list["MetadataValue"]

_SCALARS = {
    GGUFValueType.UINT8: "B",
    GGUFValueType.INT8: "b",
    GGUFValueType.UINT16: "H",
    GGUFValueType.INT16: "h",
    GGUFValueType.UINT32: "I",
    GGUFValueType.INT32: "i",
    GGUFValueType.FLOAT32: "f",
    GGUFValueType.UINT64: "Q",
    GGUFValueType.INT64: "q",
    GGUFValueType.FLOAT64: "d",
    GGUFValueType.BOOL: "?",
}
_VERSIONS = (2, 3)


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One stored tensor: `shape` is row major (the reverse of the file's), `offset` and `nbytes` are in the file."""

    type: GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """All of a GGUF file but the weights; `size` is the file's, in bytes."""

    metadata: Mapping[str, MetadataValue]
    tensors: Mapping[str, GgufTensor]
    size: int


def read_gguf_header(path: Path) -> GgufHeader:
    """The header of the file at `path`; parsed once a process as long as the file does not change.

    Raises ModelError when the file is missing, no GGUF file, of an unknown version, damaged or truncated.
    """
    try:
        state = path.stat()
        return _read_cached(path, state.st_size, state.st_mtime_ns)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from error
    except (_DamagedError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} is damaged or truncated ({error}): download or copy it again") from error


class _DamagedError(Exception):
    """The bytes are not a GGUF header."""


@lru_cache(maxsize=2)
def _read_cached(path: Path, size: int, mtime_ns: int) -> GgufHeader:
    del mtime_ns  # part of the cache's key alone
    if size == 0:
        raise _DamagedError("it is empty")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        return _Parser(view).header(path)


class _Parser:
    """Reads values one after another from `view`."""

    def __init__(self, view: mmap.mmap) -> None:
        self._view = view
        self._at = 0

    def header(self, path: Path) -> GgufHeader:
        if self._take(4) != b"GGUF":
            raise ModelError(f"{path} is no GGUF file: give a GGUF file or a Hugging Face folder")
        version = self._number("I")
        if version not in _VERSIONS:
            raise ModelError(f"{path} has GGUF version {version}; supported are little-endian files of version 2 and 3")
        tensor_count, pair_count = self._number("Q"), self._number("Q")
        metadata = self._metadata(self._believable(pair_count, 13))
        infos = [self._tensor_info() for _ in range(self._believable(tensor_count, 24))]
        alignment = metadata.get("general.alignment", GGUF_DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment <= 0:
            raise _DamagedError(f"alignment {alignment}")
        start = -(-self._at // alignment) * alignment
        return GgufHeader(metadata, self._place(infos, start), len(self._view))

    def _metadata(self, count: int) -> dict[str, MetadataValue]:
        metadata: dict[str, MetadataValue] = {}
        for _ in range(count):
            key = self._string()
            metadata[key] = self._value(GGUFValueType(self._number("I")))
        return metadata

    def _value(self, kind: GGUFValueType) -> MetadataValue:
        if kind == GGUFValueType.STRING:
            return self._string()
        if kind == GGUFValueType.ARRAY:
            return self._array(GGUFValueType(self._number("I")), self._number("Q"))
        (value,) = self._unpack(_SCALARS[kind])
        return value

    def _array(self, kind: GGUFValueType, count: int) -> list[MetadataValue]:
        if kind in _SCALARS:
            self._believable(count, struct.calcsize(_SCALARS[kind]))
            return list(self._unpack(f"{count}{_SCALARS[kind]}"))
        if kind == GGUFValueType.STRING:
            return [self._string() for _ in range(self._believable(count, 8))]
        return [self._value(kind) for _ in range(self._believable(count, 12))]

    def _tensor_info(self) -> tuple[str, GgufTensor]:
        """The table's entry; its offset is still relative to the start of the weights."""
        name = self._string()
        axes = self._unpack(f"{self._believable(self._number('I'), 8)}Q")
        kind = GGMLQuantizationType(self._number("I"))
        block, block_bytes = GGML_QUANT_SIZES[kind]
        if not axes or axes[0] % block:
            raise _DamagedError(f"tensor {name} of type {kind.name} has rows of {axes[:1]} elements")
        return name, GgufTensor(kind, axes[::-1], self._number("Q"), prod(axes) // block * block_bytes)

    def _place(self, infos: list[tuple[str, GgufTensor]], start: int) -> dict[str, GgufTensor]:
        placed: dict[str, GgufTensor] = {}
        for name, info in infos:
            offset = start + info.offset
            if offset + info.nbytes > len(self._view):
                raise _DamagedError(f"tensor {name} ends at byte {offset + info.nbytes} of {len(self._view)}")
            placed[name] = GgufTensor(info.type, info.shape, offset, info.nbytes)
        return placed

    def _believable(self, count: int, item_bytes: int) -> int:
        """The count, if that many items of at least `item_bytes` still fit into the file."""
        if count * item_bytes > len(self._view) - self._at:
            raise _DamagedError(f"{count} items announced at byte {self._at} of {len(self._view)}")
        return count

    def _string(self) -> str:
        return self._take(self._number("Q")).decode()

    def _number(self, code: str) -> int:
        (value,) = self._unpack(code)
        return int(value)

    def _unpack(self, code: str) -> tuple[int, ...]:
        """Values of a struct code; floats and bools too, which the callers know."""
        layout = f"<{code}"
        return struct.unpack(layout, self._take(struct.calcsize(layout)))

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._view):
            raise _DamagedError(f"it ends at byte {len(self._view)}, in its header")
        taken = self._view[self._at : end]
        self._at = end
        return taken
