"""One page in one file: a header that says what it is, and the bytes. Written whole or not at all.

Layout, little endian: magic, version, geometry (layers, KV heads, page size, head dimension, dtype), digest of the
model fingerprint, content hash, xxh3-64 of the page's bytes, their number, xxh3-64 of the header so far; zeros up to
the end of the machine's page, so that the bytes are copied from and to equally aligned memory.
"""

import hashlib
import mmap
import os
import re
import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from halfmoon.cache.hashing import HASH_BYTES
from halfmoon.config import PageGeometry
from kvtransfer.checksum import block_checksum
from kvtransfer.store.base import TierPage

SUFFIX = ".kvpage"
TEMPORARY_SUFFIX = ".kvpage-new"
HEADER_BYTES = mmap.PAGESIZE

_MAGIC = b"halfmoonKVpage\r\n"
_VERSION = 1
_HEADER = struct.Struct("<16sI4I16s16s16sQQ")
_CHECK = struct.Struct("<Q")
_NAME = re.compile(rf"([0-9a-f]{{{2 * HASH_BYTES}}}){re.escape(SUFFIX)}")


class PageFormat:
    """Files of one model and geometry in one folder. `write` may run in several threads at once, the rest in one."""

    def __init__(self, folder: Path, geometry: PageGeometry, fingerprint: str) -> None:
        self._folder = folder
        self._geometry = geometry
        self._model = hashlib.blake2b(fingerprint.encode(), digest_size=16).digest()
        self._header = bytearray(HEADER_BYTES)
        self.file_bytes = HEADER_BYTES + geometry.block_bytes

    def path(self, content_hash: bytes) -> Path:
        """Of a page's file."""
        return self._folder / f"{content_hash.hex()}{SUFFIX}"

    def write(self, page: TierPage) -> None:
        """Puts a page in place in one step, once its bytes are safe. Raises OSError, and leaves nothing then."""
        path = self.path(page.content_hash)
        temporary = path.with_suffix(TEMPORARY_SUFFIX)
        try:
            with open(temporary, "wb", buffering=0, opener=_private) as file:
                header = self._pack(page.content_hash, page.checksum)
                _write_all(file.fileno(), memoryview(header), page.data.data)
                os.fsync(file.fileno())
            temporary.rename(path)
        except OSError:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise

    def read(self, content_hash: bytes, data: NDArray[np.uint8]) -> int | None:
        """Fills `data` and returns its checksum; None when the file is not whole, or is of another page.

        Raises FileNotFoundError, or another OSError when the machine cannot read it.
        """
        with open(self.path(content_hash), "rb", buffering=0) as file:
            if os.readv(file.fileno(), [self._header, data.data]) != self.file_bytes:
                return None
        checksum = self._unpack(content_hash)
        return checksum if checksum is not None and block_checksum(data) == checksum else None

    def is_whole(self, content_hash: bytes) -> bool:
        """Whether header and size are right; the bytes are looked at when they are read. Raises OSError."""
        with open(self.path(content_hash), "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size != self.file_bytes or file.readinto(self._header) != HEADER_BYTES:
                return False
        return self._unpack(content_hash) is not None

    def _fields(self, content_hash: bytes, checksum: int) -> bytes:
        shape = self._geometry
        sizes = (shape.layers, shape.kv_heads, shape.page_size, shape.head_dim, shape.dtype.encode())
        return _HEADER.pack(_MAGIC, _VERSION, *sizes, self._model, content_hash, checksum, shape.block_bytes)

    def _pack(self, content_hash: bytes, checksum: int) -> bytes:
        fields = self._fields(content_hash, checksum)
        return (fields + _CHECK.pack(xxhash.xxh3_64_intdigest(fields))).ljust(HEADER_BYTES, b"\0")

    def _unpack(self, content_hash: bytes) -> int | None:
        """The checksum that the header in the buffer names, if it is the header of this page."""
        checksum: int = _HEADER.unpack_from(self._header)[-2]
        return checksum if self._header == self._pack(content_hash, checksum) else None


def content_hash_of(name: str) -> bytes | None:
    """The page that a file of this name is for; None for other names."""
    named = _NAME.fullmatch(name)
    return bytes.fromhex(named[1]) if named else None


def _private(path: str, flags: int) -> int:
    """A prompt's KV is for nobody else's eyes."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _write_all(fd: int, *parts: memoryview) -> None:
    left = list(parts)
    while left:
        written = os.writev(fd, left)
        while left and written >= len(left[0]):
            written -= len(left.pop(0))
        if left:
            left[0] = left[0][written:]
