"""One batch in a foreign engine that knows no deadline and cannot be cancelled."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvtransfer.transports.memory_window import MemoryWindow
from kvtransfer.transports.mooncake_engine import Engine, Place

_FIRST_PAUSE = 20e-6
_LONGEST_PAUSE = 500e-6


@dataclass(frozen=True, slots=True)
class Copy:
    """`length` bytes at `offset` of the owner's pool, to `local_offset` of the window."""

    offset: int
    length: int
    local_offset: int


class EngineRead:
    """Runs in a thread of its own until the engine has really let go, and calls `released` there as the last thing.

    The caller `wait`s, and may `abandon` it: then the window's pages are shut, and the engine writes no more into them,
    whatever it still does.
    """

    def __init__(
        self,
        engine: Engine,
        window: MemoryWindow,
        place: Place,
        copies: Sequence[Copy],
        released: Callable[["EngineRead"], None],
    ) -> None:
        self.succeeded = [False] * len(copies)
        self._engine = engine
        self._window = window
        self._place = place
        self._copies = copies
        self._released = released
        self._abandoned = False
        self._woken = threading.Event()
        self._ended = threading.Event()
        self._opening = window.open((copy.local_offset, copy.length) for copy in copies)
        threading.Thread(target=self._run, name="mooncake-read", daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Returns when the engine has ended, when woken, or after so long; whether the engine has ended."""
        self._woken.wait(seconds)
        return self._ended.is_set()

    def wake(self) -> None:
        """Ends `wait` at once."""
        self._woken.set()

    def abandon(self) -> None:
        """When it returns, nothing is written any more. Where the engine writes past the kernel, it waits for it."""
        self._abandoned = True
        if not self._window.guarded:
            self._ended.wait()
        self._opening.shut()

    def _run(self) -> None:
        try:
            self._move()
        finally:
            self._opening.shut()
            self._ended.set()
            self._woken.set()
            self._released(self)

    def _move(self) -> None:
        transfers: dict[int, int] = {}
        for index, copy in enumerate(self._copies):
            if self._abandoned:
                break
            local = self._window.address + copy.local_offset
            transfer = self._engine.start_read(self._place, local, copy.offset, copy.length)
            if transfer is not None:
                transfers[index] = transfer
        pause = _FIRST_PAUSE
        while transfers:
            for index, transfer in list(transfers.items()):
                ended = self._engine.poll(transfer)
                if ended is not None:
                    self.succeeded[index] = ended
                    del transfers[index]
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)
