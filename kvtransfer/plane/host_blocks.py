"""The block pool as coroutines and transport threads share it."""

import asyncio
import threading
import time
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from halfmoon.config import RETRY_AFTER
from halfmoon.errors import InvalidRequestError, OverloadedError
from kvtransfer.core.block_queue import BlockQueue, Lane, Outcome, Ticket
from kvtransfer.core.host_store import HostStore
from kvtransfer.core.pool import BlockOwner, BlockPool, Use
from kvtransfer.spec import PlaneSpec


class HostBlocks:
    """Made in the event loop that waits for blocks. `release`, `hand_over` and `store` may be used from any thread.

    `tiers` are the names of the prefix store's tiers below host memory.
    """

    def __init__(self, spec: PlaneSpec, tiers: Iterable[str] = ()) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._pool = BlockPool(spec.host_blocks)
        self._store = HostStore(self._pool, bound=spec.store_blocks, reserve=spec.pull_reserve, tiers=tiers)
        self._queue = BlockQueue(self._pool, reserve=spec.pull_reserve, bound=spec.offer_queue, spare=self._store)
        self._waits: dict[Ticket, asyncio.Future[None]] = {}

    @property
    def used_count(self) -> int:
        """Blocks that cannot be had: with an owner that would not give them up."""
        with self._lock:
            return self._pool.used_count - self._store.spare_count

    async def acquire(self, owner: BlockOwner, lane: Lane, least: int, most: int, deadline: float) -> tuple[int, ...]:
        """`least` to `most` blocks, waiting in line until `deadline` (monotonic).

        Raises InvalidRequestError at once when there can never be so many, OverloadedError at the deadline or when too
        many wait. Cancelled or failed, it leaves nothing behind.
        """
        capacity = self._queue.capacity(lane)
        if least > capacity:
            raise InvalidRequestError(f"{least} host blocks are needed, the host pool has {capacity} for this")
        ticket = Ticket(owner, lane, least, most, deadline)
        with self._lock:
            self._queue.join(ticket)
        self.advance()
        if ticket.outcome is Outcome.WAITING:
            await self._wait(ticket)
        if ticket.outcome is not Outcome.GRANTED:
            raise OverloadedError(
                f"no {least} host blocks in time: {self.used_count} of {self._pool.total} are in use",
                retry_after=RETRY_AFTER,
            )
        return ticket.blocks

    def advance(self) -> None:
        """Ends the waits that can end now; in the loop's thread."""
        with self._lock:
            settled = self._queue.advance(time.monotonic())
        for ticket in settled:
            wait = self._waits.get(ticket)
            if wait is not None and not wait.done():
                wait.set_result(None)

    def release(self, blocks: Iterable[int], owner: BlockOwner) -> None:
        """Gives blocks back; those who wait are served soon."""
        with self._lock:
            self._pool.release(blocks, owner)
        self._loop.call_soon_threadsafe(self.advance)

    def hand_over(self, block: int, owner: BlockOwner, to: BlockOwner) -> None:
        """Changes the owner of a block."""
        with self._lock:
            self._pool.hand_over([block], owner, to)

    def held_by(self, owner: BlockOwner) -> frozenset[int]:
        """All blocks of an owner."""
        with self._lock:
            return self._pool.held_by(owner)

    def owner_of_delivered(self, block: int) -> BlockOwner:
        """The pull that delivered a block. Raises InvalidRequestError for a block that the engine does not hold."""
        with self._lock:
            owner = self._pool.owner_of(block)
        if owner is None or owner.use is not Use.DELIVERED:
            raise InvalidRequestError(f"host block {block} is not held by the engine")
        return owner

    @contextmanager
    def store(self) -> Iterator[HostStore]:
        """The prefix store's part, for a moment; blocks that became spare go to those who wait."""
        with self._lock:
            yield self._store
        self._loop.call_soon_threadsafe(self.advance)

    def claim(self, key: Hashable, hashes: Sequence[bytes]) -> dict[bytes, int]:
        """As `HostStore.claim`, but nothing while somebody waits for blocks: running requests come before the store."""
        with self._lock:
            return {} if self._queue.waiting else self._store.claim(key, hashes, time.monotonic())

    def check(self) -> None:
        """Raises InternalError when blocks were lost or given twice."""
        with self._lock:
            self._pool.check()
            self._store.check()

    async def _wait(self, ticket: Ticket) -> None:
        wait = self._loop.create_future()
        self._waits[ticket] = wait
        try:
            await wait
        except asyncio.CancelledError:
            self._abandon(ticket)
            raise
        finally:
            del self._waits[ticket]

    def _abandon(self, ticket: Ticket) -> None:
        with self._lock:
            self._queue.leave(ticket)
            if ticket.outcome is Outcome.GRANTED:
                self._pool.release(ticket.blocks, ticket.owner)
        self.advance()
