"""The requests under way: bounded, counted, drained, and ended when draining takes too long."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from halfmoon.config import RETRY_AFTER
from halfmoon.errors import HalfmoonError, OverloadedError, UnavailableError


class Failable(Protocol):
    """Work that can be ended with an error from outside."""

    def fail(self, error: HalfmoonError) -> None:
        """Ends the work with `error`."""


class Running:
    """API requests under way, and the generations among them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._generations: set[Failable] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self.count = 0
        self.draining = False

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Holds a place. Raises UnavailableError while draining and OverloadedError when all places are taken."""
        if self.draining:
            raise UnavailableError("the server is shutting down", retry_after=RETRY_AFTER)
        if self.count >= self._limit:
            raise OverloadedError(f"{self._limit} requests are under way already", retry_after=RETRY_AFTER)
        self.count += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.count -= 1
            if self.count == 0:
                self._idle.set()

    @contextmanager
    def generating(self, generation: Failable) -> Iterator[None]:
        """Lets `abort` reach a generation."""
        self._generations.add(generation)
        try:
            yield
        finally:
            self._generations.discard(generation)

    def drain(self) -> None:
        """Admits nothing from now on."""
        self.draining = True

    async def wait_idle(self, seconds: float) -> bool:
        """Waits until nothing is under way; False when `seconds` were not enough."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), seconds)
        return self.count == 0

    def abort(self, error: HalfmoonError) -> None:
        """Ends every generation with `error`, which its client gets to see."""
        for generation in tuple(self._generations):
            generation.fail(error)
