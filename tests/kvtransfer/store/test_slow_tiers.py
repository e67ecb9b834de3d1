"""Tiers below host memory that are slow, fail, or lose pages: nobody else notices."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import numpy as np
from numpy.typing import NDArray

from kvtransfer.checksum import block_checksum
from kvtransfer.core.block_queue import Lane
from kvtransfer.core.pool import BlockOwner, Use
from kvtransfer.plane.host_blocks import HostBlocks
from kvtransfer.plane.prefix_store import PrefixStore
from kvtransfer.region import Region
from kvtransfer.store.base import TierPage, TierPlace, TierUsage
from kvtransfer.store.tier_thread import TierThread
from tests.kvtransfer.planes import plane_spec
from tests.kvtransfer.rig import eventually
from tests.kvtransfer.store.pages import content, hashes, page_hash

SPEC = plane_spec("a", 1, host_blocks=8, store_blocks=6, lease_seconds=5.0)
OFFER = BlockOwner(Use.OFFERED, b"offer")


class MemoryTier:
    """Keeps pages in a dictionary. Each call first waits while `gate` is closed."""

    def __init__(self, name: str = "disk") -> None:
        self._name = name
        self.pages: dict[bytes, tuple[int, NDArray[np.uint8]]] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.refuses = False

    @property
    def name(self) -> str:
        return self._name

    def register(self, region: Region) -> None:
        pass

    def knows(self, content_hash: bytes) -> bool:
        return False

    def contents(self) -> frozenset[bytes]:
        return frozenset()

    def touch(self, hashes: Sequence[bytes]) -> None:
        pass

    def contains(self, hashes: Sequence[bytes], *, deadline: float) -> list[bool]:
        return [each in self.pages for each in hashes]

    def read(self, places: Sequence[TierPlace], *, deadline: float) -> list[int | None]:
        self.gate.wait(10)
        return [self._read(place) for place in places]

    def write(self, pages: Sequence[TierPage], *, deadline: float) -> list[bool]:
        self.gate.wait(10)
        if not self.refuses:
            self.pages.update({page.content_hash: (page.checksum, page.data.copy()) for page in pages})
        return [not self.refuses] * len(pages)

    def usage(self) -> TierUsage:
        return TierUsage()

    def close(self) -> None:
        self.gate.set()

    def keep(self, *numbers: int) -> None:
        """Pages that it has from elsewhere."""
        for content_hash in hashes(*numbers):
            data = content(content_hash)
            self.pages[content_hash] = (block_checksum(data), data)

    def _read(self, place: TierPlace) -> int | None:
        checksum, place.data[:] = self.pages.get(place.content_hash, (None, 0))
        return checksum


class Bench:
    """A store over `tiers` in this process."""

    def __init__(self, *tiers: MemoryTier) -> None:
        self.region = Region.create(SPEC.layout.total_bytes)
        self.blocks = HostBlocks(SPEC, [tier.name for tier in tiers])
        self.threads = [TierThread(tier, self.region, SPEC.layout) for tier in tiers]
        self.store = PrefixStore(SPEC, self.region, self.blocks, self.threads)

    def put(self, *numbers: int) -> int:
        places = self.store.begin_put(numbers[0], hashes(*numbers))
        for content_hash, block in places.items():
            self.view(block)[:] = content(content_hash)
        self.store.end_put(numbers[0], {each: block_checksum(content(each)) for each in places}, give_up_rest=True)
        return len(places)

    async def get(self, *numbers: int, seconds: float = 5.0) -> int:
        """The length of the leading run. Fails the test for a wrong byte."""
        run = await self.store.pin_run(hashes(*numbers), seconds)
        for page in run:
            assert np.array_equal(self.view(page.block), content(page.content_hash))
        self.store.unpin([page.content_hash for page in run])
        return len(run)

    def view(self, block: int) -> NDArray[np.uint8]:
        return self.region.view(SPEC.layout.offset(block), SPEC.layout.block_bytes)

    async def close(self) -> None:
        await self.store.close()
        self.blocks.check()
        assert self.blocks.used_count == 0
        for thread in self.threads:
            thread.close()
        self.region.close()


@asynccontextmanager
async def bench(*tiers: MemoryTier) -> AsyncIterator[Bench]:
    made = Bench(*tiers)
    try:
        yield made
    finally:
        for tier in tiers:
            tier.gate.set()
        await made.close()


async def test_what_a_tier_has_not_brought_in_time_comes_later() -> None:
    tier = MemoryTier()
    tier.keep(1, 2)
    async with bench(tier) as made:
        tier.gate.clear()
        began = time.monotonic()
        assert await made.get(1, 2, seconds=0.2) == 0
        assert 0.2 <= time.monotonic() - began < 1.0
        tier.gate.set()
        await eventually(lambda: made.blocks.used_count == 0)
        assert await made.get(1, 2, seconds=0.0) == 2


async def test_a_tier_that_hangs_keeps_no_more_than_one_batch_of_host_blocks_from_others() -> None:
    tier = MemoryTier()
    tier.keep(1, 2, 3, 4)
    async with bench(tier) as made:
        tier.gate.clear()
        await asyncio.gather(*(made.get(number, seconds=0.1) for number in (1, 2, 3, 4)))
        assert made.blocks.used_count == 1
        blocks = await made.blocks.acquire(OFFER, Lane.OFFER, 7, 7, time.monotonic() + 0.1)
        made.blocks.release(blocks, OFFER)


async def test_a_tier_that_does_not_take_pages_keeps_no_host_block_from_others() -> None:
    tier = MemoryTier()
    async with bench(tier) as made:
        tier.gate.clear()
        assert made.put(1, 2, 3) == 3
        await eventually(lambda: made.blocks.used_count == 0)
        assert made.put(4, 5, 6, 7, 8, 9) == 6
        blocks = await made.blocks.acquire(OFFER, Lane.OFFER, 8, 8, time.monotonic() + 0.1)
        made.blocks.release(blocks, OFFER)


async def test_a_page_that_is_refused_is_not_offered_again() -> None:
    tier = MemoryTier()
    tier.refuses = True
    async with bench(tier) as made:
        made.put(1)
        await made.store.close()
        assert tier.pages == {}
        assert await made.get(1) == 1


async def test_a_page_that_a_tier_has_lost_ends_the_run() -> None:
    tier = MemoryTier()
    async with bench(tier) as made:
        made.put(1, 2, 3, 4)
        await eventually(lambda: len(tier.pages) == 4)
        made.put(11, 12, 13, 14, 15, 16)
        del tier.pages[page_hash(3)]
        assert await made.get(1, 2, 3, 4) == 2


async def test_a_run_is_put_together_from_all_tiers() -> None:
    disk, cluster = MemoryTier("disk"), MemoryTier("cluster")
    async with bench(disk, cluster) as made:
        disk.keep(1, 4)
        cluster.keep(2, 5)
        made.put(3)
        assert await made.get(1, 2, 3, 4, 5, 6) == 5
        assert (made.store.meters.hits["disk"], made.store.meters.hits["cluster"]) == (2, 2)


async def test_every_tier_gets_new_pages_and_none_gets_its_own_back() -> None:
    disk, cluster = MemoryTier("disk"), MemoryTier("cluster")
    async with bench(disk, cluster) as made:
        made.put(1, 2)
        await eventually(lambda: len(disk.pages) == len(cluster.pages) == 2)
        disk.keep(7)
        assert await made.get(7) == 1
    assert page_hash(7) not in cluster.pages


async def test_readers_of_the_same_page_bring_it_once() -> None:
    tier = MemoryTier()
    tier.keep(1)
    async with bench(tier) as made:
        assert await asyncio.gather(*(made.get(1) for _ in range(5))) == [1] * 5
        assert made.store.meters.hits["disk"] == 1


async def test_a_cancelled_wait_leaves_nothing_pinned() -> None:
    tier = MemoryTier()
    tier.keep(2)
    async with bench(tier) as made:
        made.put(1)
        await eventually(lambda: page_hash(1) in tier.pages)
        tier.gate.clear()
        waiting = asyncio.create_task(made.store.pin_run(hashes(1, 2), 5.0))
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.wait([waiting])
        tier.gate.set()
        await eventually(lambda: made.blocks.used_count == 0)
