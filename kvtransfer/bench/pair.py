"""Both ends of a contestant, each in a process of its own."""

import asyncio
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import DupFd
from typing import Protocol

from kvtransfer.bench.cases import Case
from kvtransfer.bench.contestants import contestant_named
from kvtransfer.bench.sides import Offer, OwnerSide, ReaderSide
from kvtransfer.bench.worker import Worker, answer_all
from kvtransfer.region import Region


class Descriptor(Protocol):
    """A file descriptor on its way to a process that is being started."""

    def detach(self) -> int:
        """The descriptor there; to be called once."""


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
        self._owner = Worker(f"{name} (owner)", owner_main, name, DupFd(source.fd))
        self._reader = Worker(f"{name} (reader)", reader_main, name, DupFd(source.fd), DupFd(target.fd))

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


def owner_main(pipe: Connection, name: str, source: Descriptor) -> None:
    """The owner's process."""
    side = contestant_named(name).own(Region.attach(source.detach()))
    with asyncio.Runner() as runner:
        try:
            answer_all(pipe, lambda command: _run_owner(runner, side, command))
        finally:
            side.close()


def reader_main(pipe: Connection, name: str, source: Descriptor, target: Descriptor) -> None:
    """The reader's process."""
    side = contestant_named(name).read(Region.attach(source.detach()), Region.attach(target.detach()))
    try:
        answer_all(pipe, lambda command: _run_reader(side, command))
    finally:
        side.close()


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
