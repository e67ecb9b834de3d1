"""Which tiers lie below a worker's host memory."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from kvtransfer.region import Region
from kvtransfer.spec import PlaneSpec
from kvtransfer.store.base import StoreTier
from kvtransfer.store.disk import DiskTier
from kvtransfer.store.mooncake import MooncakeTier
from kvtransfer.store.tier_thread import TierThread


async def open_tiers(spec: PlaneSpec, region: Region, stack: AsyncExitStack) -> list[TierThread]:
    """The tiers that the spec names, the fastest first; `stack` closes them. Raises ConfigError for one without use."""
    tiers: list[StoreTier] = []
    if spec.disk_folder:
        folder = Path(spec.disk_folder)
        tiers.append(await asyncio.to_thread(DiskTier, folder, spec.disk_bytes, spec.geometry, spec.fingerprint))
    if spec.cluster_master:
        tiers.append(await asyncio.to_thread(MooncakeTier, spec))
    threads = [TierThread(tier, region, spec.layout) for tier in tiers]
    for thread in threads:
        stack.callback(thread.close)
    return threads
