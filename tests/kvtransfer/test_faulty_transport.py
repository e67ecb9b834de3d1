"""The fault-injecting transport: what it does is drawn from a seed, and whatever it does is found by a fetch."""

import asyncio
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from halfmoon.errors import TransferError
from kvtransfer.checksum import block_checksum
from kvtransfer.plane.block_fetch import WantedBlock, fetch_blocks
from kvtransfer.region import Region
from kvtransfer.transports.base import ReadKey, StopSignal
from tests.kvtransfer.faults.injector import Injector
from tests.kvtransfer.faults.misdeeds import HARMLESS, Misdeed, Plan, draw_plan
from tests.kvtransfer.faults.transport import FaultyTransport
from tests.kvtransfer.kinds import NAMES
from tests.kvtransfer.rig import Rig, block, rig


def test_a_seed_is_a_plan() -> None:
    plans = [draw_plan(f"7/{index}") for index in range(500)]
    assert plans == [draw_plan(f"7/{index}") for index in range(500)]
    assert plans != [draw_plan(f"8/{index}") for index in range(500)]
    assert {misdeed for plan in plans for misdeed in plan.misdeeds} == set(Misdeed)


def faulty(owner: Rig, injector: Injector) -> tuple[FaultyTransport, Region]:
    """A transport to the owner, and its memory."""
    inner, local = owner.reader()
    transport = FaultyTransport(inner, injector.next)
    transport.register(local)
    return transport, local


def fetch(transport: FaultyTransport, local: Region, key: ReadKey, wanted: list[WantedBlock]) -> bool:
    """Whether all blocks are said to be right."""
    deadline = time.monotonic() + 5
    try:
        fetch_blocks(transport, local, key, wanted, read_seconds=5.0, deadline=deadline, stop=StopSignal())
    except (TransferError, RuntimeError):
        return False
    return True


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("misdeed", Misdeed)
async def test_every_misdeed_is_found_and_the_next_fetch_is_right(name: str, misdeed: Misdeed, tmp_path: Path) -> None:
    async with rig(name, tmp_path) as owner:
        key, offsets = await owner.offer(3)
        wanted = [
            WantedBlock(i, block(offset, 4096 * i), block_checksum(owner.bytes_at(offset, 4096)), i)
            for i, offset in enumerate(offsets)
        ]
        for seed in range(5):
            injector = Injector()
            injector.plan(key.handle_id, Plan(str(seed), (misdeed,)))
            transport, local = faulty(owner, injector)
            said = await asyncio.to_thread(fetch, transport, local, key, wanted)
            assert said == (misdeed in HARMLESS)
            assert await asyncio.to_thread(fetch, transport, local, key, wanted)
            assert injector.committed == Counter([misdeed, Misdeed.NONE])
            for item in wanted:
                theirs = owner.bytes_at(item.read.offset, 4096)
                assert np.array_equal(local.view(item.read.local_offset, 4096), theirs)
