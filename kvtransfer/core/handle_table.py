"""The life of handles: offer, publish in order, seal, and then release, expiry or withdrawal."""

from collections.abc import Callable, Iterable, Sequence

from halfmoon.errors import InternalError, InvalidRequestError, LeaseExpiredError
from kvtransfer.core.handle import Handle, HandleState, Read
from kvtransfer.core.recent import RecentSet
from kvtransfer.core.store_index import StoredBlock
from kvtransfer.proofs import handle_label, handle_tag

_REMEMBERED = 4096
"""Withdrawals that may overtake their offers."""

Notify = Callable[[Handle], None]


class HandleTable:
    """All handles whose blocks are not back in the pool.

    Blocks go back (`on_free`, once for each handle) when the handle has ended, the engine writes no more, and every
    read has ended; reads that are still there `grace` seconds after the end are refused. `on_change` is called
    whenever a watching reader has something to learn. Times are of one monotonic clock, in seconds.
    """

    def __init__(self, *, lease: float, grace: float, on_change: Notify, on_free: Notify) -> None:
        self._lease = lease
        self._grace = grace
        self._on_change = on_change
        self._on_free = on_free
        self._handles: dict[bytes, Handle] = {}
        self._by_tag: dict[bytes, Handle] = {}
        self._withdrawn: RecentSet[bytes] = RecentSet(_REMEMBERED)

    @property
    def open_count(self) -> int:
        """Handles neither released nor withdrawn nor expired."""
        return sum(handle.state is not HandleState.ENDED for handle in self._handles.values())

    @property
    def lease_count(self) -> int:
        """Sealed handles whose lease runs."""
        return sum(handle.state is HandleState.SEALED for handle in self._handles.values())

    @property
    def read_count(self) -> int:
        """Reads under way."""
        return sum(len(handle.reads) for handle in self._handles.values())

    def offer(self, handle_id: bytes, request_id: str, blocks: Sequence[int], expires: float) -> Handle:
        """A new OPEN handle over blocks that the caller has reserved.

        Raises InvalidRequestError for a known id, LeaseExpiredError for one that was withdrawn before it came to be.
        """
        if handle_id in self._withdrawn:
            raise LeaseExpiredError(f"handle {handle_label(handle_id)}: withdrawn while it waited for blocks")
        if handle_id in self._handles:
            raise InvalidRequestError(f"handle {handle_label(handle_id)} is offered already")
        handle = Handle(handle_id, handle_tag(handle_id), request_id, tuple(blocks), expires, self._lease)
        self._enter(handle)
        return handle

    def lend(self, handle_id: bytes, run: Sequence[StoredBlock], seal: bytes, lease: float, now: float) -> Handle:
        """A SEALED handle over pinned pages of the prefix store; `on_free` is where they are unpinned.

        `lease` is in seconds; it is cut to what every handle gets. `handle_id` is new.
        """
        bound = min(lease, self._lease)
        blocks = tuple(page.block for page in run)
        handle = Handle(handle_id, handle_tag(handle_id), "", blocks, now + bound, bound)
        handle.lent = tuple(page.content_hash for page in run)
        handle.state, handle.seal, handle.being_written = HandleState.SEALED, seal, False
        handle.checksums = [page.checksum for page in run]
        handle.published.update(blocks)
        self._enter(handle)
        return handle

    def find(self, handle_id: bytes, now: float) -> Handle:
        """A live handle. Raises LeaseExpiredError for one that is unknown, released, withdrawn or expired."""
        handle = self._handles.get(handle_id)
        if handle is not None and handle.state is not HandleState.ENDED and now >= handle.expires:
            self._expire_one(handle, now)
        if handle is None or handle.state is HandleState.ENDED:
            why = handle.failure if handle is not None else "unknown here, or ended earlier"
            raise LeaseExpiredError(f"handle {handle_label(handle_id)}: {why}")
        return handle

    def find_by_tag(self, tag: bytes) -> Handle | None:
        """The handle of a public name, in whichever state."""
        return self._by_tag.get(tag)

    def publish(self, handle_id: bytes, first_block: int, checksums: Iterable[int], now: float) -> int:
        """Marks the next blocks as complete; returns how many are. Raises InvalidRequestError when out of order."""
        handle = self.find(handle_id, now)
        added = list(checksums)
        if handle.state is not HandleState.OPEN or first_block != handle.ready_count:
            raise InvalidRequestError(f"block {first_block} published, {handle.ready_count} are complete")
        if handle.ready_count + len(added) > len(handle.blocks):
            raise InvalidRequestError(f"{handle.ready_count + len(added)} blocks published of {len(handle.blocks)}")
        handle.published.update(handle.blocks[first_block : first_block + len(added)])
        handle.checksums += added
        self._on_change(handle)
        return handle.ready_count

    def seal(self, handle_id: bytes, seal: bytes, now: float) -> None:
        """Completes a handle and starts its lease. Raises InvalidRequestError while blocks are missing.

        Whether it raises LeaseExpiredError or not: after it the engine writes no more.
        """
        try:
            handle = self.find(handle_id, now)
        except LeaseExpiredError:
            self._engine_lets_go(handle_id)
            raise
        if handle.state is not HandleState.OPEN or handle.ready_count != len(handle.blocks):
            raise InvalidRequestError(
                f"sealed with {handle.ready_count} of {len(handle.blocks)} blocks, {handle.state.value}"
            )
        handle.state, handle.seal = HandleState.SEALED, seal
        handle.being_written = False
        handle.expires = now + handle.lease
        self._on_change(handle)

    def renew(self, handle_id: bytes, now: float) -> float:
        """The lease of a sealed handle runs anew; returns its length. An unsealed one keeps its own bound."""
        handle = self.find(handle_id, now)
        if handle.state is HandleState.SEALED:
            handle.expires = now + handle.lease
        return handle.lease

    def release(self, handle_id: bytes, now: float) -> bool:
        """A reader, or the router, wants no more of it. False when nothing was held. Idempotent."""
        try:
            handle = self.find(handle_id, now)
        except LeaseExpiredError:
            return False
        self._end(handle, "released", now)
        return True

    def withdraw(self, handle_id: bytes, reason: str, now: float) -> bool:
        """The engine ends a handle, and writes no more. False when nothing was held. Idempotent."""
        handle = self._handles.get(handle_id)
        if handle is None:
            self._withdrawn.add(handle_id)
            return False
        if handle.state is not HandleState.ENDED:
            self._end(handle, reason or "withdrawn", now)
        self._engine_lets_go(handle_id)
        return True

    def begin_read(self, handle_id: bytes, now: float, refuse: Callable[[], None]) -> Read:
        """Keeps the blocks from reuse until `end_read`. Raises LeaseExpiredError."""
        read = Read(self.find(handle_id, now), refuse)
        read.handle.reads.add(read)
        return read

    def end_read(self, read: Read, now: float) -> bool:
        """Whether the handle has been alive, and the read not refused, until now. Idempotent: later calls say False."""
        handle = read.handle
        if read not in handle.reads:
            return False
        handle.reads.remove(read)
        if handle.state is not HandleState.ENDED and now >= handle.expires:
            self._expire_one(handle, now)
        self._settle(handle)
        return handle.state is not HandleState.ENDED

    def expire(self, now: float) -> None:
        """Ends handles past their time, and refuses reads that outlive an ended handle by more than the grace."""
        for handle in list(self._handles.values()):
            if handle.state is not HandleState.ENDED:
                if now >= handle.expires:
                    self._expire_one(handle, now)
            elif handle.reads and now >= handle.ended_at + self._grace:
                self._refuse_reads(handle)

    def close(self, reason: str, now: float) -> None:
        """Ends every handle; watching readers learn the reason."""
        for handle in list(self._handles.values()):
            if handle.state is not HandleState.ENDED:
                self._end(handle, reason, now)

    def check(self) -> None:
        """Raises InternalError when a handle without a reason to stay is still here, or two share an offered block."""
        blocks = [block for handle in self._handles.values() if not handle.lent for block in handle.blocks]
        stale = [h for h in self._handles.values() if h.state is HandleState.ENDED and not h.busy]
        if stale or len(set(blocks)) != len(blocks):
            raise InternalError(f"{len(stale)} ended handles kept, {len(blocks)} blocks of {len(set(blocks))} held")

    def _enter(self, handle: Handle) -> None:
        self._handles[handle.handle_id] = handle
        self._by_tag[handle.tag] = handle

    def _expire_one(self, handle: Handle, now: float) -> None:
        was = "lease" if handle.state is HandleState.SEALED else "offer"
        self._end(handle, f"the {was} ran out", now)

    def _end(self, handle: Handle, reason: str, now: float) -> None:
        handle.state, handle.failure, handle.ended_at = HandleState.ENDED, reason, now
        self._on_change(handle)
        self._settle(handle)

    def _engine_lets_go(self, handle_id: bytes) -> None:
        handle = self._handles.get(handle_id)
        if handle is not None:
            handle.being_written = False
            self._settle(handle)

    def _refuse_reads(self, handle: Handle) -> None:
        for read in list(handle.reads):
            read.refuse()
        handle.reads.clear()
        self._settle(handle)

    def _settle(self, handle: Handle) -> None:
        if handle.state is HandleState.ENDED and not handle.busy and handle.handle_id in self._handles:
            del self._handles[handle.handle_id]
            del self._by_tag[handle.tag]
            self._on_free(handle)
