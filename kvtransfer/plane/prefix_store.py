"""The prefix store of a data plane: puts, leases, and what lies below host memory."""

import asyncio
import time
from collections.abc import Mapping, Sequence

from halfmoon.errors import LeaseExpiredError
from kvtransfer.core.recent import RecentSet
from kvtransfer.core.store_index import StoredBlock
from kvtransfer.core.store_leases import StoreLeases
from kvtransfer.plane.host_blocks import HostBlocks
from kvtransfer.plane.store_loader import HostPages, StoreLoader, StoreMeters
from kvtransfer.plane.store_saver import StoreSaver
from kvtransfer.region import Region
from kvtransfer.spec import PlaneSpec
from kvtransfer.store.base import TierUsage
from kvtransfer.store.tier_thread import TierThread

HOST = "host"
"""Name of the tier in host memory."""

_LOADS = 64
"""Batches that are awaited from below at once; a tier that hangs shall not gather more."""

_REMEMBERED = 4096
"""Ends of puts that may overtake their beginnings."""

_FLUSH_SECONDS = 3.0
"""At the end, for pages that no tier below has yet."""


class PrefixStore:
    """Belongs to the event loop. `tiers` lie below host memory, the fastest first."""

    def __init__(self, spec: PlaneSpec, region: Region, blocks: HostBlocks, tiers: Sequence[TierThread]) -> None:
        self._spec = spec
        self._blocks = blocks
        self._tiers = tiers
        self._leases = StoreLeases()
        self._ended_puts: RecentSet[int] = RecentSet(_REMEMBERED)
        self._contents: frozenset[bytes] = frozenset()
        self._counted: tuple[int, ...] = ()
        self._loads: set[asyncio.Task[list[StoredBlock]]] = set()
        self.meters = StoreMeters()
        host = HostPages(blocks, region, spec.layout)
        self._loader = StoreLoader(host, tiers, self.meters)
        self._savers = [StoreSaver(host, tier) for tier in tiers]

    @property
    def lease_count(self) -> int:
        """Leases that the engine holds."""
        return len(self._leases)

    def begin_put(self, put_id: int, hashes: Sequence[bytes]) -> dict[bytes, int]:
        """Host blocks for the pages that no tier is known to have, in order, as many as can be had.

        Raises LeaseExpiredError when the put was given up before it began.
        """
        if put_id in self._ended_puts:
            raise LeaseExpiredError(f"put {put_id:x} was given up before it began")
        below = [each for each in hashes if any(tier.tier.knows(each) for tier in self._tiers)]
        self._touch_below(below)
        known = set(below)
        return self._blocks.claim(put_id, [each for each in hashes if each not in known])

    def end_put(self, put_id: int, pages: Mapping[bytes, int | None], *, give_up_rest: bool) -> None:
        """Pages by their checksums are stored now; those without are given up.

        Raises InvalidRequestError for a page that is not being written by the put.
        """
        now = time.monotonic()
        with self._blocks.store() as store:
            store.require_claims(put_id, pages)
            for content_hash, checksum in reversed(list(pages.items())):
                if checksum is None:
                    store.give_up(put_id, content_hash)
                else:
                    store.fill(put_id, content_hash, checksum, now)
            if give_up_rest:
                self._ended_puts.add(put_id)
                for content_hash in store.claimed_by(put_id):
                    store.give_up(put_id, content_hash)
        for saver in self._savers:
            saver.wake()

    async def acquire(self, lease_id: int, hashes: Sequence[bytes], seconds: float) -> list[StoredBlock]:
        """Pins the longest leading run that is in host memory in `seconds`, until `release` or the lease's end.

        Raises LeaseExpiredError when it was released meanwhile, InvalidRequestError for an id in use.
        """
        self._leases.require_new(lease_id)
        run = await self.pin_run(hashes, seconds)
        pinned = [page.content_hash for page in run]
        try:
            self._leases.grant(lease_id, pinned, time.monotonic() + self._spec.lease_seconds)
        except BaseException:
            self.unpin(pinned)
            raise
        return run

    def release(self, lease_id: int) -> bool:
        """Ends a lease; whether it was alive until now."""
        run = self._leases.end(lease_id)
        if run is None:
            return False
        self.unpin(run.hashes)
        return time.monotonic() < run.expires

    def expire(self) -> None:
        """Ends the leases past their time; to be called often."""
        for run in self._leases.expire(time.monotonic()):
            self.unpin(run.hashes)

    async def pin_run(self, hashes: Sequence[bytes], seconds: float) -> list[StoredBlock]:
        """Pins the longest leading run that is in host memory, or comes there from below in `seconds`."""
        deadline = time.monotonic() + seconds
        wanted = hashes[: self._spec.store_blocks]
        with self._blocks.store() as store:
            run = store.pin_run(wanted, time.monotonic())
        self._count_host(len(run), len(wanted))
        self._touch_below([page.content_hash for page in run])
        try:
            while len(run) < len(wanted):
                batch = wanted[len(run) : len(run) + self._loader.batch]
                brought = await self._bring(batch, deadline)
                run += brought
                if not batch or len(brought) < len(batch):
                    break
        except BaseException:
            self.unpin([page.content_hash for page in run])
            raise
        return run

    def unpin(self, hashes: Sequence[bytes]) -> None:
        """Takes one pin from each page."""
        with self._blocks.store() as store:
            store.unpin(hashes)

    def contents(self) -> frozenset[bytes]:
        """All pages that can be had, as far as that is known without asking anybody; the same set until it changes."""
        with self._blocks.store() as store:
            counted = (store.stored, store.dropped, *(tier.tier.usage().changes for tier in self._tiers))
            if counted != self._counted:
                self._contents = store.contents.union(*(tier.tier.contents() for tier in self._tiers))
                self._counted = counted
        return self._contents

    def usage(self) -> dict[str, TierUsage]:
        """By the tier's name; empty without a store."""
        if not self._spec.store_blocks:
            return {}
        size = self._spec.layout.block_bytes
        with self._blocks.store() as store:
            oldest = store.oldest_use
            age = 0.0 if oldest is None else time.monotonic() - oldest
            host = TierUsage(store.stored, store.dropped, 0, store.block_count * size, store.bound * size, age)
        return {HOST: host, **{tier.name: tier.tier.usage() for tier in self._tiers}}

    async def close(self) -> None:
        """Writes to the tiers below what they do not have yet, and waits for what they bring, for a bounded time."""
        await asyncio.gather(*(saver.close(_FLUSH_SECONDS) for saver in self._savers))
        if self._loads:
            await asyncio.wait(set(self._loads), timeout=_FLUSH_SECONDS / 2)

    async def _bring(self, batch: Sequence[bytes], deadline: float) -> list[StoredBlock]:
        """The leading run of `batch`, pinned, or nothing when it is not here in time: then it comes by itself."""
        seconds = deadline - time.monotonic()
        if not batch or seconds <= 0 or len(self._loads) >= _LOADS:
            return []
        load = asyncio.create_task(self._loader.bring_run(batch))
        self._loads.add(load)
        load.add_done_callback(self._loads.discard)
        try:
            done, _ = await asyncio.wait([load], timeout=seconds)
        except asyncio.CancelledError:
            load.add_done_callback(self._unpin_late)
            raise
        if not done:
            load.add_done_callback(self._unpin_late)
            return []
        return load.result()

    def _unpin_late(self, load: "asyncio.Task[list[StoredBlock]]") -> None:
        if not load.cancelled() and load.exception() is None:
            self.unpin([page.content_hash for page in load.result()])

    def _touch_below(self, hashes: Sequence[bytes]) -> None:
        """Later pages of a prompt count as used earlier."""
        for tier in self._tiers:
            tier.tier.touch(hashes[::-1])

    def _count_host(self, hits: int, asked: int) -> None:
        self.meters.hits[HOST] += hits
        self.meters.misses[HOST] += asked - hits
