"""The owner's half of the data plane: offers, leases, and who may read."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from halfmoon.errors import HalfmoonError, LeaseExpiredError, StaleIncarnationError
from kvtransfer.core.block_queue import Lane
from kvtransfer.core.handle import Handle, HandleState
from kvtransfer.core.handle_table import HandleTable
from kvtransfer.core.pool import BlockOwner, Use
from kvtransfer.core.store_index import StoredBlock
from kvtransfer.layout import HOST_REGION
from kvtransfer.plane.host_blocks import HostBlocks
from kvtransfer.proofs import handle_tag, new_handle_id
from kvtransfer.region import Region
from kvtransfer.spec import PlaneSpec
from kvtransfer.transports.base import BlockRead, Grant, ReadStatus
from kvtransfer.transports.lease_board import LeaseBoard


@dataclass(frozen=True, slots=True)
class HandleNews:
    """What a watching reader learns: checksums it does not have yet, and the end if there is one."""

    ready_count: int
    checksums: tuple[int, ...]
    seal: bytes | None
    failure: str

    @property
    def final(self) -> bool:
        """Whether nothing follows."""
        return self.seal is not None or bool(self.failure)


class Owner:
    """All handles of this process; the `ReadGate` of its transport servers. Thread-safe where `ReadGate` says so."""

    def __init__(self, spec: PlaneSpec, region: Region, blocks: HostBlocks, board: LeaseBoard | None = None) -> None:
        self.incarnation = spec.incarnation
        self.region = region
        self.board = board
        self._layout = spec.layout
        self._blocks = blocks
        self._loop = asyncio.get_running_loop()
        self._lock = threading.RLock()
        self._watchers: dict[bytes, set[asyncio.Event]] = {}
        self._table = HandleTable(
            lease=spec.lease_seconds, grace=spec.grace_seconds, on_change=self._changed, on_free=self._free
        )

    @property
    def open_count(self) -> int:
        """Handles neither released nor withdrawn nor expired."""
        with self._lock:
            return self._table.open_count

    @property
    def lease_count(self) -> int:
        """Sealed handles whose lease runs."""
        with self._lock:
            return self._table.lease_count

    @property
    def read_count(self) -> int:
        """Reads under way."""
        with self._lock:
            return self._table.read_count

    def require_incarnation(self, expected: int) -> None:
        """Raises StaleIncarnationError for the handle of another process."""
        if expected != self.incarnation:
            raise StaleIncarnationError(f"the handle is of incarnation {expected:x}, this is {self.incarnation:x}")

    async def offer(self, handle_id: bytes, request_id: str, count: int, seconds: float) -> Handle:
        """Reserves `count` host blocks under a handle to be sealed in `seconds`; errors as of `HostBlocks.acquire`."""
        deadline = time.monotonic() + seconds
        holder = BlockOwner(Use.OFFERED, handle_tag(handle_id))
        blocks = await self._blocks.acquire(holder, Lane.OFFER, count, count, deadline)
        try:
            with self._lock:
                return self._table.offer(handle_id, request_id, blocks, deadline)
        except HalfmoonError:
            self._blocks.release(blocks, holder)
            raise

    def lend(self, run: Sequence[StoredBlock], lease: float) -> Handle:
        """A sealed handle over pinned pages of the prefix store, which are unpinned at its end."""
        with self._lock:
            return self._table.lend(new_handle_id(), run, b"", lease, time.monotonic())

    def publish(self, handle_id: bytes, first_block: int, checksums: Iterable[int]) -> int:
        """See `HandleTable.publish`."""
        with self._lock:
            return self._table.publish(handle_id, first_block, checksums, time.monotonic())

    def seal(self, handle_id: bytes, seal: bytes) -> None:
        """See `HandleTable.seal`."""
        with self._lock:
            self._table.seal(handle_id, seal, time.monotonic())

    def withdraw(self, handle_id: bytes, reason: str) -> bool:
        """See `HandleTable.withdraw`."""
        with self._lock:
            return self._table.withdraw(handle_id, reason, time.monotonic())

    def renew(self, handle_id: bytes) -> float:
        """See `HandleTable.renew`."""
        with self._lock:
            lease = self._table.renew(handle_id, time.monotonic())
            self._show(self._table.find(handle_id, time.monotonic()))
            return lease

    def release(self, handle_id: bytes) -> bool:
        """See `HandleTable.release`."""
        with self._lock:
            return self._table.release(handle_id, time.monotonic())

    def expire(self) -> None:
        """See `HandleTable.expire`; to be called often."""
        with self._lock:
            self._table.expire(time.monotonic())

    def close(self) -> None:
        """Ends all handles: watching readers learn that the worker stops."""
        with self._lock:
            self._table.close("the worker stops", time.monotonic())

    async def watch(self, handle_id: bytes, known_ready: int) -> AsyncGenerator[HandleNews, None]:
        """What becomes known of a handle, until its seal or failure. Raises LeaseExpiredError. Renews its lease."""
        with self._lock:
            self._table.renew(handle_id, time.monotonic())
            handle = self._table.find(handle_id, time.monotonic())
            self._show(handle)
        changed = asyncio.Event()
        self._watchers.setdefault(handle_id, set()).add(changed)
        try:
            known, first = known_ready, True
            while True:
                changed.clear()
                news = self._news(handle, known)
                if first or news.checksums or news.final:
                    yield news
                if news.final:
                    return
                known, first = news.ready_count, False
                await changed.wait()
        finally:
            self._stop_watching(handle_id, changed)

    def secret_of(self, tag: bytes) -> bytes | None:
        """See `ReadGate`."""
        with self._lock:
            handle = self._table.find_by_tag(tag)
            return handle.handle_id if handle is not None else None

    def begin(self, handle_id: bytes, reads: Sequence[BlockRead], refuse: Callable[[], None]) -> Grant | None:
        """See `ReadGate`."""
        with self._lock:
            try:
                read = self._table.begin_read(handle_id, time.monotonic(), refuse)
            except LeaseExpiredError:
                return None
        published = read.handle.published  # it only grows, and the read keeps the blocks
        return Grant(read, tuple([self._range_status(published, wanted) for wanted in reads]))

    def end(self, grant: Grant) -> bool:
        """See `ReadGate`."""
        with self._lock:
            return self._table.end_read(grant.read, time.monotonic())

    def _range_status(self, published: AbstractSet[int], wanted: BlockRead) -> ReadStatus:
        inside = wanted.region == HOST_REGION and self._layout.block_of(wanted.offset, wanted.length) in published
        return ReadStatus.OK if inside else ReadStatus.BAD_RANGE

    def _news(self, handle: Handle, known: int) -> HandleNews:
        with self._lock:
            ended = handle.state is HandleState.ENDED
            seal = None if ended else handle.seal
            failure = handle.failure if ended else ""
            return HandleNews(handle.ready_count, tuple(handle.checksums[known:]), seal, failure)

    def _show(self, handle: Handle) -> None:
        """On the board, where the pages of the prefix store are not: several handles may have them."""
        if self.board is None or handle.lent:
            return
        ready = handle.blocks[: handle.ready_count]
        if handle.state is HandleState.ENDED:
            self.board.clear(ready, handle.tag)
        else:
            self.board.post(ready, handle.tag, handle.expires)

    def _changed(self, handle: Handle) -> None:
        self._show(handle)
        self._loop.call_soon_threadsafe(self._wake, handle.handle_id)

    def _wake(self, handle_id: bytes) -> None:
        for changed in self._watchers.get(handle_id, ()):
            changed.set()

    def _stop_watching(self, handle_id: bytes, changed: asyncio.Event) -> None:
        watchers = self._watchers[handle_id]
        watchers.discard(changed)
        if not watchers:
            del self._watchers[handle_id]

    def _free(self, handle: Handle) -> None:
        if handle.lent:
            with self._blocks.store() as store:
                store.unpin(handle.lent)
            return
        self._blocks.release(handle.blocks, BlockOwner(Use.OFFERED, handle.tag))
