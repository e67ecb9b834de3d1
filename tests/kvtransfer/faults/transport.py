"""A transport around another one that drops, delays, cuts and falsifies what it brings, by a plan."""

import random
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from kvtransfer.region import Region
from kvtransfer.transports.base import BlockRead, ReadKey, ReadStatus, StopSignal, Transport
from tests.kvtransfer.faults.misdeeds import Misdeed

Places = list[NDArray[np.uint8]]

LONGEST_DELAY = 0.5


class FaultyTransport:
    """A `Transport` that keeps the rules of one: it lies about bytes, never about being done with the destination.

    `what_next(key)` says what happens to each batch.
    """

    def __init__(self, inner: Transport, what_next: Callable[[ReadKey], tuple[Misdeed, random.Random]]) -> None:
        self._inner = inner
        self._what_next = what_next
        self._region: Region | None = None

    @property
    def name(self) -> str:
        """That of the transport inside."""
        return self._inner.name

    @property
    def streams(self) -> int:
        """Those of the transport inside."""
        return self._inner.streams

    def register(self, region: Region) -> None:
        """See `Transport`."""
        self._region = region
        self._inner.register(region)

    def close(self) -> None:
        """See `Transport`."""
        self._inner.close()

    def read_batch(
        self, key: ReadKey, reads: Sequence[BlockRead], *, deadline: float, stop: StopSignal
    ) -> list[ReadStatus]:
        """See `Transport`."""
        misdeed, rng = self._what_next(key)
        if misdeed is Misdeed.RAISE:
            raise RuntimeError("a bug of the transport")
        if misdeed is Misdeed.DROP:
            return [ReadStatus.UNREACHABLE] * len(reads)
        if misdeed is Misdeed.REFUSE:
            return [rng.choice((ReadStatus.LEASE_EXPIRED, ReadStatus.STALE_INCARNATION))] * len(reads)
        if misdeed is Misdeed.DELAY:
            _wait(min(deadline, time.monotonic() + rng.random() * LONGEST_DELAY), stop)
        places = self._places(reads)
        before = [place.copy() for place in places]
        statuses = self._inner.read_batch(key, reads, deadline=deadline, stop=stop)
        if misdeed is Misdeed.CUT:
            rng.choice(places)[:] = rng.randbytes(1)[0]
            return [ReadStatus.UNREACHABLE] * len(reads)
        if misdeed in _LIES:
            _LIES[misdeed](places, before, rng)
        return statuses

    def _places(self, reads: Sequence[BlockRead]) -> Places:
        assert self._region is not None
        return [self._region.view(read.local_offset, read.length) for read in reads]


def _wait(until: float, stop: StopSignal) -> None:
    woken = threading.Event()
    with stop.attached(woken.set):
        woken.wait(max(0.0, until - time.monotonic()))


def _shorten(places: Places, before: Places, rng: random.Random) -> None:
    index = rng.randrange(len(places))
    missing = rng.randint(1, places[index].size)
    places[index][-missing:] = before[index][-missing:]


def _flip(places: Places, before: Places, rng: random.Random) -> None:
    place = rng.choice(places)
    place[rng.randrange(place.size)] ^= 1 << rng.randrange(8)


def _swap(places: Places, before: Places, rng: random.Random) -> None:
    if len(places) == 1:
        places[0][:] = np.roll(places[0], rng.randint(1, max(1, places[0].size - 1)))
        return
    one, other = rng.sample(places, 2)
    one[:], other[:] = other.copy(), one.copy()


def _replace(places: Places, before: Places, rng: random.Random) -> None:
    for place in places:
        place[:] = np.frombuffer(rng.randbytes(place.size), dtype=np.uint8)


_LIES: dict[Misdeed, Callable[[Places, Places, random.Random], None]] = {
    Misdeed.SHORT: _shorten,
    Misdeed.FLIP: _flip,
    Misdeed.SWAP: _swap,
    Misdeed.STALE: _replace,
}
