"""A second mapping of a region for a foreign engine: what is not open in it, the engine cannot touch.

An engine that copies with system calls gets EFAULT at a page that is shut, ends that transfer with an error, and goes
on living. So the kernel sees to it that it touches a block between `open` and `shut` alone, whoever asked it to.
"""

import ctypes
import logging
import mmap
import os
import threading
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from kvtransfer.region import Region

_PROT_NONE = 0
_MREMAP_MAYMOVE = 1
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000
_FAILED = ctypes.c_void_p(-1).value

_log = logging.getLogger(__name__)
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mremap.restype = ctypes.c_void_p
_libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]


class MemoryWindow:
    """Shut when made. Open pages can be read, and written where `writable`. Thread-safe.

    A window that is not `guarded` is the region itself, always open: for hardware that moves bytes past the kernel.
    """

    def __init__(self, region: Region, *, writable: bool, guarded: bool = True) -> None:
        self.size = region.size
        self.guarded = guarded
        self._region: Region | None = None if guarded else region
        self._prot = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self._lock = threading.Lock()
        self._broken = False
        self._opened: NDArray[np.uint16] = np.zeros(-(-region.size // mmap.PAGESIZE), dtype=np.uint16)
        self.address = self._map(region) if guarded else region.address

    def open(self, ranges: Iterable[tuple[int, int]]) -> "Opening":
        """Opens the pages of `ranges` of (offset, length) until the opening is shut.

        Raises OSError when the kernel has no more room for it; then nothing is open.
        """
        opening = Opening(self)
        try:
            for offset, length in ranges:
                self._open(opening, offset // mmap.PAGESIZE, -(-(offset + length) // mmap.PAGESIZE))
        except OSError:
            opening.shut()
            raise
        return opening

    def close(self) -> None:
        """Unmaps it. No engine may know the address any more; idempotent."""
        with self._lock:
            self._broken = True
            self._region = None
            if self.guarded and self.address:
                _libc.munmap(self.address, self.size)
                self.address = 0

    def bury(self) -> None:
        """Gives up the memory and keeps the addresses empty for ever: for an engine that may still know them."""
        with self._lock:
            self._broken = True
            self._region = None
            if self.guarded and self.address:
                _replace_by_nothing(self.address, self.size)
                self.address = 0

    def _map(self, region: Region) -> int:
        """`mremap` of nothing doubles a shared mapping: that works for a sealed region too, and keeps its rights."""
        address = _libc.mremap(region.address, 0, region.size, _MREMAP_MAYMOVE)
        if address == _FAILED:
            raise _error("mremap")
        _protect(address, region.size, _PROT_NONE)
        return int(address)

    def _open(self, opening: "Opening", first: int, end: int) -> None:
        with self._lock:
            if self._broken:
                raise OSError("the window is closed")
            if self.guarded:
                self._protect(first, end, self._prot)
            self._opened[first:end] += 1
            opening.pages.append((first, end))

    def shut(self, opening: "Opening") -> None:
        """See `Opening.shut`."""
        with self._lock:
            for first, end in opening.pages:
                self._opened[first:end] -= 1
                self._shut_unused(first, end)
            opening.pages.clear()

    def _shut_unused(self, first: int, end: int) -> None:
        if not self.guarded or not self.address:
            return
        try:
            for run_first, run_end in _zero_runs(self._opened[first:end]):
                self._protect(first + run_first, first + run_end, _PROT_NONE)
        except OSError as error:
            # Shutting all splits no mapping, so that it cannot fail.
            _log.warning("a window is shut for ever", extra={"error": error.strerror})
            _protect(self.address, self.size, _PROT_NONE)
            self._broken = True

    def _protect(self, first: int, end: int, prot: int) -> None:
        _protect(self.address + first * mmap.PAGESIZE, (end - first) * mmap.PAGESIZE, prot)


class Opening:
    """Pages of a window that are open; may be shut from any thread."""

    def __init__(self, window: MemoryWindow) -> None:
        self._window = window
        self.pages: list[tuple[int, int]] = []

    def shut(self) -> None:
        """When it returns, an engine touches these pages no more, unless another opening has them too. Idempotent."""
        self._window.shut(self)


def _zero_runs(counts: NDArray[np.uint16]) -> list[tuple[int, int]]:
    """[first, end) of each run of zeros."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], counts == 0, [False])).astype(np.int8)))
    return [(int(first), int(end)) for first, end in edges.reshape(-1, 2)]


def _protect(address: int, size: int, prot: int) -> None:
    if _libc.mprotect(address, size, prot) != 0:
        raise _error("mprotect")


def _replace_by_nothing(address: int, size: int) -> None:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED | _MAP_NORESERVE
    if _libc.mmap(address, size, _PROT_NONE, flags, -1, 0) == _FAILED:
        raise _error("mmap")


def _error(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}")
