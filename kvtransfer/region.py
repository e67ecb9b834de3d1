"""Memory that two processes share: a sealed memfd, mapped by each."""

import fcntl
import mmap
import os
from typing import Self

import numpy as np
from numpy.typing import NDArray

from halfmoon.errors import ConfigError, TransferError

_F_SEAL_FUTURE_WRITE = 0x0010
_SIZE_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


class Region:
    """A mapping of a memfd, page-aligned; its pages come into being when they are first touched.

    Views keep the mapping alive: `close` drops the region's own reference and its descriptor, and the memory goes
    when the last view does.
    """

    def __init__(self, fd: int, mapping: mmap.mmap) -> None:
        self._fd = fd
        self._bytes: NDArray[np.uint8] = np.frombuffer(mapping, dtype=np.uint8)

    @classmethod
    def create(cls, size: int) -> Self:
        """New zeroed memory of `size` bytes, which stays its size. Raises ConfigError when there is too little."""
        fd = os.memfd_create("halfmoon-kv", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SIZE_SEALS)
            return cls(fd, mmap.mmap(fd, size))
        except OSError as error:
            os.close(fd)
            raise ConfigError(f"cannot map a host pool of {size} bytes: {error.strerror}") from error

    @classmethod
    def attach(cls, fd: int) -> Self:
        """Maps memory made by `create` for reading and writing; takes over `fd`."""
        return cls(fd, mmap.mmap(fd, os.fstat(fd).st_size))

    @classmethod
    def attach_readonly(cls, fd: int, size: int | None) -> Self:
        """Maps a peer's memory for reading; takes over `fd`, also on errors.

        Raises TransferError unless it has exactly `size` bytes (where that is known) and can never shrink: reading
        past the end of memory that its owner has cut is a bus error.
        """
        try:
            size = os.fstat(fd).st_size if size is None else size
            if not fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK or os.fstat(fd).st_size != size:
                raise TransferError(f"the peer's memory is not a sealed region of {size} bytes")
            return cls(fd, mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ))
        except OSError as error:
            os.close(fd)
            raise TransferError(f"cannot map the peer's memory: {error.strerror}") from error
        except TransferError:
            os.close(fd)
            raise

    @property
    def size(self) -> int:
        """Bytes."""
        return self._bytes.size

    @property
    def fd(self) -> int:
        """The memfd, for handing it to another process."""
        return self._fd

    @property
    def address(self) -> int:
        """Where the mapping begins in this process."""
        return self._bytes.ctypes.data

    def view(self, offset: int, length: int) -> NDArray[np.uint8]:
        """The bytes [offset, offset + length). Raises ValueError when they are not all inside."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise ValueError(f"bytes {offset} to {offset + length} lie outside of a region of {self.size} bytes")
        return self._bytes[offset : offset + length]

    def forbid_new_writers(self) -> None:
        """Whoever maps this memory from now on can only read it; mappings that exist go on. Also seals the seals."""
        fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, _F_SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL)

    def close_fd(self) -> None:
        """Closes the descriptor and keeps the mapping; idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        """Gives up descriptor and mapping; idempotent."""
        self.close_fd()
        self._bytes = np.empty(0, dtype=np.uint8)
