"""A tier below host memory with the one thread that works for it."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from kvtransfer.layout import BlockLayout
from kvtransfer.region import Region
from kvtransfer.store.base import StoreTier, TierPage, TierPlace

Result = TypeVar("Result")

BATCH_BLOCKS = 64
BATCH_BYTES = 8 << 20
"""Bounds of one call: what reads wait for when writes are under way."""

CALL_SECONDS = 5.0
"""Deadline of one call to a tier."""


class TierThread:
    """Runs the calls of a tier one after the other, off the event loop.

    Pages are written from `staging`, memory of its own: so a tier that is slow keeps no host block from others. One
    batch is brought back at a time (`turn`): so no more host blocks than it has wait for the tier.
    """

    def __init__(self, tier: StoreTier, region: Region, layout: BlockLayout) -> None:
        self.tier = tier
        self.turn = asyncio.Lock()
        self.batch = max(1, min(BATCH_BLOCKS, BATCH_BYTES // layout.stride))
        self._staged = BlockLayout(layout.block_bytes, self.batch)
        self._staging = Region.create(self._staged.total_bytes)
        self._staging.close_fd()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"store-{tier.name}")
        tier.register(region)
        tier.register(self._staging)

    @property
    def name(self) -> str:
        """Of the tier."""
        return self.tier.name

    def stage(self, index: int, page: TierPage) -> TierPage:
        """A copy of a page as number `index` of the next `batch` to write. Blocks for the time of a copy."""
        copy = self._staging.view(self._staged.offset(index), self._staged.block_bytes)
        copy[:] = page.data
        return TierPage(page.content_hash, page.checksum, copy)

    async def contains(self, hashes: Sequence[bytes]) -> list[bool]:
        """See `StoreTier`."""
        return await self._run(lambda deadline: self.tier.contains(hashes, deadline=deadline))

    async def read(self, places: Sequence[TierPlace]) -> list[int | None]:
        """See `StoreTier`; cancelled or not, the places are the tier's until the thread has let go."""
        return await self._run(lambda deadline: self.tier.read(places, deadline=deadline))

    async def write(self, pages: Sequence[TierPage]) -> list[bool]:
        """See `StoreTier`."""
        return await self._run(lambda deadline: self.tier.write(pages, deadline=deadline))

    def close(self) -> None:
        """Ends thread and tier; a call that still runs is waited for no longer."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self.tier.close()
        self._staging.close()

    async def _run(self, work: Callable[[float], Result]) -> Result:
        """The deadline runs from when the thread begins."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: work(time.monotonic() + CALL_SECONDS))
