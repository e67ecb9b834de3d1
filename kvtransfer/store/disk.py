"""Pages on disk: one file each in one folder, within a bound of bytes, found again by the next process."""

import logging
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from halfmoon.config import PageGeometry
from halfmoon.errors import ConfigError
from kvtransfer.core.byte_lru import ByteLru
from kvtransfer.region import Region
from kvtransfer.store.base import TierPage, TierPlace, TierUsage
from kvtransfer.store.folder_lock import FolderLock
from kvtransfer.store.page_file import TEMPORARY_SUFFIX, PageFormat, content_hash_of

_log = logging.getLogger(__name__)

_LOCK_SECONDS = 10.0
"""A worker that has just ended may still write its last pages."""


_WRITERS = 4
"""Files whose safety is awaited at once: the disk serves them together."""


class DiskTier:
    """A `StoreTier`. Ages are on the wall clock, since they outlast the process: a file's time of change is that of
    its last use.

    Everything in the folder that is named like a page and is not whole, or of another model or geometry, is removed.
    Files with other names are left alone.
    """

    name = "disk"

    def __init__(self, folder: Path, limit_bytes: int, geometry: PageGeometry, fingerprint: str) -> None:
        """Blocks while it looks through the folder. Raises ConfigError when it cannot be used, or is in use."""
        self._format = PageFormat(folder, geometry, fingerprint)
        if limit_bytes < self._format.file_bytes:
            raise ConfigError(f"{limit_bytes} bytes on disk for KV pages: one takes {self._format.file_bytes}")
        self._lock_file = FolderLock(folder, wait_seconds=_LOCK_SECONDS)
        self._folder = folder
        self._lock = threading.Lock()
        self._pages: ByteLru[bytes] = ByteLru(limit_bytes)
        self._stored = self._dropped = self._damaged = 0
        self._failing = False
        self._writers = ThreadPoolExecutor(_WRITERS, thread_name_prefix="store-disk-write")
        self._find_pages()

    def register(self, region: Region) -> None:
        """Files are read into and written from any memory."""

    def knows(self, content_hash: bytes) -> bool:
        """See `StoreTier`."""
        with self._lock:
            return content_hash in self._pages

    def contents(self) -> frozenset[bytes]:
        """See `StoreTier`."""
        with self._lock:
            return frozenset(self._pages)

    def touch(self, hashes: Sequence[bytes]) -> None:
        """See `StoreTier`. The files learn of it when they are read."""
        now = time.time()
        with self._lock:
            for content_hash in hashes:
                self._pages.touch(content_hash, now)

    def contains(self, hashes: Sequence[bytes], *, deadline: float) -> list[bool]:
        """See `StoreTier`."""
        return [self.knows(content_hash) for content_hash in hashes]

    def read(self, places: Sequence[TierPlace], *, deadline: float) -> list[int | None]:
        """See `StoreTier`."""
        checksums = [None if time.monotonic() >= deadline else self._read(place) for place in places]
        self._mark_used([place.content_hash for place, each in zip(places, checksums, strict=True) if each is not None])
        return checksums

    def write(self, pages: Sequence[TierPage], *, deadline: float) -> list[bool]:
        """See `StoreTier`. Several files at once: each waits until the disk says that it is safe."""
        new = [page for page in pages if not self.knows(page.content_hash)]
        most = self._pages.bound // self._format.file_bytes
        for start in range(0, len(new), most):
            self._write_files(new[start : start + most], deadline)
        return [self.knows(page.content_hash) for page in pages]

    def usage(self) -> TierUsage:
        """See `StoreTier`."""
        with self._lock:
            oldest, held = self._pages.oldest_use, self._pages.bytes
        age = 0.0 if oldest is None else max(0.0, time.time() - oldest)
        return TierUsage(self._stored, self._dropped, self._damaged, held, self._pages.bound, age)

    def close(self) -> None:
        """Lets the next process have the folder; idempotent."""
        self._writers.shutdown(wait=False, cancel_futures=True)
        self._lock_file.close()

    def _read(self, place: TierPlace) -> int | None:
        if not self.knows(place.content_hash):
            return None
        try:
            checksum = self._format.read(place.content_hash, place.data)
            if checksum is not None:
                return checksum
        except OSError as error:
            _log.warning("a KV page cannot be read", extra={"folder": str(self._folder), "error": str(error)})
        self._remove(place.content_hash)
        self._damaged += 1
        return None

    def _mark_used(self, hashes: Sequence[bytes]) -> None:
        """Later pages of a prompt count as used earlier."""
        self.touch(hashes[::-1])
        for content_hash in reversed(hashes):
            with suppress(OSError):
                os.utime(self._format.path(content_hash))

    def _write_files(self, pages: Sequence[TierPage], deadline: float) -> None:
        """As many as fit into the bound."""
        with self._lock:
            gone = self._pages.make_room(len(pages) * self._format.file_bytes)
        for content_hash in gone:
            self._remove(content_hash)
        self._dropped += len(gone)
        written = self._writers.map(lambda page: time.monotonic() < deadline and self._write(page), pages)
        now = time.time()
        for page, done in zip(pages, written, strict=True):
            if done:
                with self._lock:
                    self._pages.add(page.content_hash, self._format.file_bytes, now)
            self._stored += done
            self._dropped += not done

    def _write(self, page: TierPage) -> bool:
        try:
            self._format.write(page)
        except OSError as error:
            self._fails(error)
            return False
        self._failing = False
        return True

    def _fails(self, error: OSError) -> None:
        """One line for a disk that stays full or broken."""
        if not self._failing:
            _log.warning("KV pages cannot be written", extra={"folder": str(self._folder), "error": str(error)})
        self._failing = True

    def _remove(self, content_hash: bytes) -> None:
        with self._lock:
            self._pages.remove(content_hash)
        with suppress(OSError):
            self._format.path(content_hash).unlink(missing_ok=True)

    def _find_pages(self) -> None:
        """What an earlier process has left: whole pages in the order of their use, as far as they fit."""
        used: list[tuple[float, bytes]] = []
        for entry in os.scandir(self._folder):
            content_hash = content_hash_of(entry.name)
            if entry.name.endswith(TEMPORARY_SUFFIX):
                with suppress(OSError):
                    os.unlink(entry.path)
            elif content_hash is not None:
                if self._is_whole(content_hash):
                    used.append((entry.stat().st_mtime, content_hash))
                else:
                    self._damaged += 1
                    self._remove(content_hash)
        for used_at, content_hash in sorted(used):
            for gone in self._pages.make_room(self._format.file_bytes):
                self._remove(gone)
            self._pages.add(content_hash, self._format.file_bytes, used_at)
        _log.info("KV pages found on disk", extra={"pages": len(self._pages), "damaged": self._damaged})

    def _is_whole(self, content_hash: bytes) -> bool:
        try:
            return self._format.is_whole(content_hash)
        except OSError:
            return False
