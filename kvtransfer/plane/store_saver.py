"""Writes new pages of the prefix store to one tier below, in the background."""

import asyncio
import time

from kvtransfer.plane.store_loader import HostPages
from kvtransfer.store.base import TierPage
from kvtransfer.store.tier_thread import TierThread


class StoreSaver:
    """A page is pinned while it is copied to the tier's own memory, and no longer. It is offered to the tier once."""

    def __init__(self, host: HostPages, tier: TierThread) -> None:
        self._host = host
        self._tier = tier
        self._changed = asyncio.Event()
        self._closing = False
        self._task = asyncio.create_task(self._run())

    def wake(self) -> None:
        """There are new pages."""
        self._changed.set()

    async def close(self, seconds: float) -> None:
        """Writes what is still to be written, for up to `seconds`."""
        self._closing = True
        self.wake()
        await asyncio.wait([self._task], timeout=seconds)
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            while await self._save_some():
                pass
            if self._closing:
                return
            await self._changed.wait()

    async def _save_some(self) -> bool:
        """Whether there was something to save."""
        with self._host.blocks.store() as store:
            hashes = store.unsaved(self._tier.name, self._tier.batch)
        staged = [page for index, each in enumerate(hashes) if (page := await self._stage(index, each)) is not None]
        if staged:
            await self._tier.write(staged)
        with self._host.blocks.store() as store:
            for content_hash in hashes:
                store.mark_saved(content_hash, self._tier.name)
        return bool(hashes)

    async def _stage(self, index: int, content_hash: bytes) -> TierPage | None:
        """A copy of a page that is still there. One is pinned at a time: a put can drop all others meanwhile."""
        with self._host.blocks.store() as store:
            pinned = store.pin_run([content_hash], time.monotonic())
        if not pinned:
            return None
        page = TierPage(content_hash, pinned[0].checksum, self._host.view(pinned[0].block))
        try:
            return await asyncio.to_thread(self._tier.stage, index, page)
        finally:
            with self._host.blocks.store() as store:
                store.unpin([content_hash])
