"""Brings pages of the prefix store back into host memory from the tiers below."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kvtransfer.core.store_index import StoredBlock
from kvtransfer.layout import BlockLayout
from kvtransfer.plane.host_blocks import HostBlocks
from kvtransfer.region import Region
from kvtransfer.store.base import TierPlace
from kvtransfer.store.tier_thread import TierThread


@dataclass(slots=True)
class StoreMeters:
    """Pages asked for that a tier had, and that it did not have, by the tier's name."""

    hits: Counter[str] = field(default_factory=Counter)
    misses: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class HostPages:
    """The host pool as the prefix store sees it."""

    blocks: HostBlocks
    region: Region
    layout: BlockLayout

    def view(self, block: int) -> NDArray[np.uint8]:
        """The bytes of a host block."""
        return self.region.view(self.layout.offset(block), self.layout.block_bytes)


class StoreLoader:
    """Asks the tiers in their order, the fastest first."""

    def __init__(self, host: HostPages, tiers: Sequence[TierThread], meters: StoreMeters) -> None:
        self._host = host
        self._tiers = tiers
        self._meters = meters

    @property
    def batch(self) -> int:
        """The most pages to ask for at once; 0 without tiers."""
        return min((tier.batch for tier in self._tiers), default=0)

    async def bring_run(self, hashes: Sequence[bytes]) -> list[StoredBlock]:
        """Pins the longest leading run of at most `batch` pages that is, or now comes, into host memory.

        Not to be cancelled: a tier may be writing into host blocks.
        """
        found = await self._find(hashes)
        for tier in self._tiers:
            if tier in found.values():
                await self._bring(tier, [each for each, place in found.items() if place in (None, tier)])
        with self._host.blocks.store() as store:
            return store.pin_run(hashes, time.monotonic())

    async def _find(self, hashes: Sequence[bytes]) -> dict[bytes, TierThread | None]:
        """Where each page of the leading run is; None stands for host memory."""
        with self._host.blocks.store() as store:
            found: dict[bytes, TierThread | None] = {each: None for each in hashes if each in store}
        for tier in self._tiers:
            missing = [each for each in hashes if each not in found]
            there = await tier.contains(missing) if missing else []
            found.update({each: tier for each, held in zip(missing, there, strict=True) if held})
            self._meters.misses[tier.name] += len(missing) - sum(there)
        run = next((count for count, each in enumerate(hashes) if each not in found), len(hashes))
        return {each: found[each] for each in hashes[:run]}

    async def _bring(self, tier: TierThread, hashes: Sequence[bytes]) -> None:
        """Brings what is not in host memory; what is there stays."""
        async with tier.turn:
            claimed = self._host.blocks.claim(tier, hashes)
            places = [TierPlace(each, self._host.view(block)) for each, block in claimed.items()]
            checksums: Sequence[int | None] = [None] * len(places)
            try:
                checksums = await tier.read(places)
            finally:
                self._settle(tier, dict(zip(claimed, checksums, strict=True)))

    def _settle(self, tier: TierThread, checksums: dict[bytes, int | None]) -> None:
        now = time.monotonic()
        with self._host.blocks.store() as store:
            for content_hash, checksum in reversed(checksums.items()):
                if checksum is None:
                    store.give_up(tier, content_hash)
                    self._meters.misses[tier.name] += 1
                else:
                    store.fill(tier, content_hash, checksum, now, save=False)
                    self._meters.hits[tier.name] += 1
