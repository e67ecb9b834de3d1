"""Waiting for arrays that a peer fills, which may never happen."""

import asyncio
import time
from collections.abc import Sequence

from jax import Array

from halfmoon.errors import DeadlineError

_FIRST_LOOK, _LONGEST_LOOK = 0.0002, 0.004
"""Seconds between looks at whether arrays are there, from the first to when it takes long."""

_ABANDONED_LOOK = 0.5
"""Seconds between looks at those that nobody waits for any more."""


class Arrivals:
    """Belongs to one event loop. Nothing blocks: a peer that is stopped must not hold a thread here."""

    def __init__(self) -> None:
        self._abandoned: list[Sequence[Array]] = []

    @property
    def abandoned_count(self) -> int:
        """Pulls that were given up, and into which a peer may still write: until it does, or its connection breaks.

        May be asked from any thread.
        """
        return len(self._abandoned)

    async def wait(self, arrays: Sequence[Array], deadline: float) -> None:
        """Returns when all are ready, or failed. Raises DeadlineError at `deadline`, a `time.monotonic()` time."""
        pause = _FIRST_LOOK
        try:
            while not _ready(arrays):
                if time.monotonic() >= deadline:
                    raise DeadlineError("the arrays of a grant did not arrive in time")
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_LOOK)
        finally:
            if not _ready(arrays):
                if not self._abandoned:
                    self._look_later()
                self._abandoned.append(arrays)

    def _look_later(self) -> None:
        asyncio.get_running_loop().call_later(_ABANDONED_LOOK, self._look)

    def _look(self) -> None:
        self._abandoned = [arrays for arrays in self._abandoned if not _ready(arrays)]
        if self._abandoned:
            self._look_later()


def _ready(arrays: Sequence[Array]) -> bool:
    return all(array.is_ready() for array in arrays)  # type: ignore[attr-defined]  # not in its interface
