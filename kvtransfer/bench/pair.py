"""Both ends of a contestant, each in a process of its own."""

import asyncio
import os
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection

from kvtransfer.bench.cases import Case
from kvtransfer.bench.contestants import contestant_named
from kvtransfer.bench.sides import Offer, OwnerSide, ReaderSide
from kvtransfer.bench.worker import Worker, answer_all
from kvtransfer.region import Region


@dataclass(frozen=True, slots=True)
class Turn:
    """Several batches, one after another: seconds of each, and the processor time of both processes for all."""

    seconds: tuple[float, ...]
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class _Serve:
    case: Case


@dataclass(frozen=True, slots=True)
class _Prepare:
    case: Case
    offer: Offer


@dataclass(frozen=True, slots=True)
class _Read:
    times: int


@dataclass(frozen=True, slots=True)
class _ProcessorTime:
    pass


class Pair:
    """The two processes, which share the pools `source` and `target` with their parent."""

    def __init__(self, name: str, source: Region, target: Region) -> None:
        self.name = name
        ours = contestant_named(name).is_ours
        paths = _path(source), _path(target)
        self._owner = Worker(f"{name} (owner)", owner_main, name, paths[0], as_plane=ours)
        self._reader = Worker(f"{name} (reader)", reader_main, name, *paths, as_plane=ours)

    def prepare(self, case: Case) -> None:
        """Serves and reads this case from now on. Raises HalfmoonError when it cannot."""
        offer = self._owner.ask(_Serve(case))
        assert isinstance(offer, Offer)
        self._reader.ask(_Prepare(case, offer))

    def read(self, times: int) -> Turn:
        """Raises HalfmoonError when a batch fails."""
        before = self._processor_time()
        seconds = self._reader.ask(_Read(times))
        assert isinstance(seconds, tuple)
        return Turn(seconds, self._processor_time() - before)

    def close(self) -> None:
        """Ends both processes."""
        self._reader.close()
        self._owner.close()

    def _processor_time(self) -> float:
        total = 0.0
        for worker in (self._owner, self._reader):
            seconds = worker.ask(_ProcessorTime())
            assert isinstance(seconds, float)
            total += seconds
        return total


def owner_main(pipe: Connection, name: str, source: str) -> None:
    """The owner's process."""
    side = contestant_named(name).own(_attach(source))
    with asyncio.Runner() as runner:
        try:
            answer_all(pipe, lambda command: _run_owner(runner, side, command))
        finally:
            side.close()


def reader_main(pipe: Connection, name: str, source: str, target: str) -> None:
    """The reader's process."""
    side = contestant_named(name).read(_attach(source), _attach(target))
    try:
        answer_all(pipe, lambda command: _run_reader(side, command))
    finally:
        side.close()


def _path(region: Region) -> str:
    """Where children of this process can open the region."""
    return f"/proc/{os.getpid()}/fd/{region.fd}"


def _attach(path: str) -> Region:
    return Region.attach(os.open(path, os.O_RDWR | os.O_CLOEXEC))


def _run_owner(runner: asyncio.Runner, side: OwnerSide, command: object) -> object:
    if isinstance(command, _Serve):
        return runner.run(side.offer(command.case))
    return time.process_time()


def _run_reader(side: ReaderSide, command: object) -> object:
    if isinstance(command, _Prepare):
        side.prepare(command.case, command.offer)
        return None
    if isinstance(command, _Read):
        return tuple(_timed(side) for _ in range(command.times))
    return time.process_time()


def _timed(side: ReaderSide) -> float:
    began = time.perf_counter()
    side.read()
    return time.perf_counter() - began
