"""What a reader shares among its batches from one owner: an engine, and the window that it writes through."""

import threading
from collections.abc import Sequence

from kvtransfer.region import Region
from kvtransfer.transports.memory_window import MemoryWindow
from kvtransfer.transports.mooncake_engine import ENGINES, Place, over_rdma
from kvtransfer.transports.mooncake_read import Copy, EngineRead
from kvtransfer.transports.sockets import PeerClosedError


class EngineChannel:
    """Serves until it is retired; its last read then gives back engine and window. Thread-safe.

    Raises ConfigError when there is no engine to be had, OSError when the kernel gives no window.
    """

    def __init__(self, host: str, region: Region, place: Place) -> None:
        self.place = place
        self._lock = threading.Lock()
        self._reads: set[EngineRead] = set()
        self._retired = False
        self._window = MemoryWindow(region, writable=True, guarded=not over_rdma())
        self._engine = ENGINES.take_to_read(host, place)
        if over_rdma():
            self._engine.register(self._window.address, self._window.size)

    def start(self, copies: Sequence[Copy]) -> EngineRead:
        """Begins to copy. Raises PeerClosedError when it is retired, OSError when the kernel cannot open the pages."""
        with self._lock:
            if self._retired:
                raise PeerClosedError
            read = EngineRead(self._engine, self._window, self.place, copies, self._released)
            self._reads.add(read)
            return read

    def retire(self, *, distrusted: bool) -> None:
        """Takes no more reads and wakes those who wait for one. `distrusted`: its engine never comes here again."""
        with self._lock:
            if distrusted:
                self._engine.distrust(self.place)
            for read in self._reads:
                read.wake()
            if not self._retired and not self._reads:
                self._give_back()
            self._retired = True

    def _released(self, read: EngineRead) -> None:
        with self._lock:
            self._reads.discard(read)
            if self._retired and not self._reads:
                self._give_back()

    def _give_back(self) -> None:
        if over_rdma():
            self._engine.unregister(self._window.address)
        self._window.close()
        ENGINES.give_back(self._engine)
