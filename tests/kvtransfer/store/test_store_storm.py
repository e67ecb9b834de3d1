"""Everything at once on a small host pool: puts, leases, peers, offers and cancellations, over a disk."""

import asyncio
import random
from contextlib import aclosing
from pathlib import Path

import numpy as np

from halfmoon.errors import OverloadedError
from kvtransfer import DataPlane, PulledBlock
from tests.kvtransfer.planes import at_rest, offer, plane_spec, planes
from tests.kvtransfer.store.pages import content, get, hashes, put

PAGES = 60
ROUNDS = 25


class Storm:
    """Workers of a pair of planes; each fails the test for a wrong byte."""

    def __init__(self, owner: DataPlane, peer: DataPlane, seed: int) -> None:
        self.owner = owner
        self.peer = peer
        self.rng = random.Random(seed)
        self.found = 0

    def chain(self) -> list[int]:
        """Pages of one of ten prompts, from its first."""
        first = self.rng.randrange(0, PAGES, 6)
        return list(range(first, first + self.rng.randint(1, 6)))

    async def puts(self) -> None:
        await put(self.owner, *self.chain())

    async def gets(self) -> None:
        self.found += await get(self.owner, *self.chain(), timeout=0.2)

    async def impatient_gets(self) -> None:
        getting = asyncio.create_task(self.owner.store.acquire(hashes(*self.chain()), 0.2))
        await asyncio.sleep(self.rng.random() * 0.01)
        getting.cancel()
        await asyncio.wait([getting])
        if not getting.cancelled():
            await self.owner.store.release(getting.result())

    async def offers(self) -> None:
        try:
            prompt = await offer(self.owner, self.rng.randint(1, 8), timeout=0.5)
        except OverloadedError:
            return
        await asyncio.sleep(self.rng.random() * 0.01)
        await self.owner.withdraw(prompt.handle.handle_id, "done")

    async def pulls(self) -> None:
        handle = await self.peer.store.acquire_from(self.owner.endpoint, hashes(*self.chain()), 0.2)
        if handle is None:
            return
        leave = self.rng.random() < 0.3
        async with aclosing(self.peer.pull("request", handle, range(len(handle.blocks)), 5.0)) as events:
            async for event in events:
                if isinstance(event, PulledBlock):
                    right = content(handle.blocks[event.block_index].content_hash)
                    assert np.array_equal(self.peer.block(event.offset), right)
                    await self.peer.free_blocks([event.offset])
                    if leave:
                        return

    async def run(self) -> None:
        kinds = (self.puts, self.puts, self.gets, self.impatient_gets, self.offers, self.pulls)

        async def one(number: int) -> None:
            for _ in range(ROUNDS):
                await kinds[number]()

        await asyncio.gather(*(one(number) for number in range(len(kinds))))


async def test_after_a_storm_nothing_is_held_and_every_byte_was_right(tmp_path: Path) -> None:
    spec = plane_spec(
        "owner",
        1,
        host_blocks=12,
        store_blocks=10,
        pull_reserve=2,
        lease_seconds=3.0,
        disk_folder=str(tmp_path),
        disk_bytes=40 * 16384,
    )
    async with planes(spec, plane_spec("peer", 2)) as (owner, peer):
        storm = Storm(owner, peer, seed=7)
        await storm.run()
        await at_rest(owner, peer)
        tiers = (await owner.stats()).store_tiers
        assert storm.found
        assert tiers["disk"].damaged == 0
        assert tiers["disk"].bytes <= tiers["disk"].limit_bytes
        assert await put(owner, 1000) == 1
        assert await get(owner, 1000) == 1
