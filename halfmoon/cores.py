"""Workers of one machine share its cores by need: one that works alone has all, several that work have a part each.

A step of one worker then disturbs no step of another. Each worker stamps a shared file when it begins a step, and reads
the others' stamps; whoever sees the set of workers change moves its own threads. A worker that died stops stamping and
no longer counts.
"""

import mmap
import os
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

_STAMP = struct.Struct("d")
_BUSY_SECONDS = 2.0
"""How long a stamp counts: longer than any step."""


def share(cores: Sequence[int], busy: Sequence[int], index: int) -> frozenset[int]:
    """The cores of worker `index` when the workers `busy` work: contiguous parts of nearly equal size."""
    if index not in busy or len(busy) <= 1:
        return frozenset(cores)
    place, workers = busy.index(index), len(busy)
    if workers > len(cores):
        return frozenset({cores[place % len(cores)]})
    start, end = place * len(cores) // workers, (place + 1) * len(cores) // workers
    return frozenset(cores[start:end])


class CoreShare:
    """One worker's view of the shared file, which holds a stamp a worker."""

    def __init__(self, path: Path, index: int, workers: int) -> None:
        self._index = index
        self._workers = workers
        self._cores = sorted(os.sched_getaffinity(0))
        self._mine = frozenset(self._cores)
        with path.open("r+b") as file:
            self._stamps = mmap.mmap(file.fileno(), workers * _STAMP.size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stamps.close()

    @staticmethod
    @contextmanager
    def file(workers: int) -> Iterator[Path]:
        """A file for so many workers, all idle. It is in memory: however this process ends, nothing of it is left."""
        descriptor = os.memfd_create("halfmoon-cores")
        try:
            os.ftruncate(descriptor, workers * _STAMP.size)
            yield Path(f"/proc/{os.getpid()}/fd/{descriptor}")
        finally:
            os.close(descriptor)

    def work(self) -> None:
        """Says that a step begins, and moves this process to its part of the cores."""
        now = time.monotonic()
        _STAMP.pack_into(self._stamps, self._index * _STAMP.size, now)
        stamps = (_STAMP.unpack_from(self._stamps, place * _STAMP.size)[0] for place in range(self._workers))
        busy = [place for place, stamp in enumerate(stamps) if now - stamp < _BUSY_SECONDS]
        cores = share(self._cores, busy, self._index)
        if cores != self._mine:
            self._mine = cores
            _move_threads(cores)

    def rest(self) -> None:
        """Says that there is nothing to do."""
        _STAMP.pack_into(self._stamps, self._index * _STAMP.size, 0.0)


def _move_threads(cores: frozenset[int]) -> None:
    for task in os.listdir("/proc/self/task"):
        try:
            os.sched_setaffinity(int(task), cores)
        except ProcessLookupError:
            continue  # the thread has just ended
