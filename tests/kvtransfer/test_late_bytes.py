"""Bytes of a transfer that is over never reach whoever has its memory next: real processes, stopped and continued."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing

import numpy as np
import pytest

from halfmoon.errors import TransferError
from kvtransfer import DataPlane, PullComplete, PulledBlock
from tests.kvtransfer.groups import MIB_BLOCKS, duo, standing_still, trio
from tests.kvtransfer.kinds import NAMES
from tests.kvtransfer.planes import Prompt, at_rest, pull, sealed, take


@pytest.fixture(params=NAMES)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def arrived(events: AsyncGenerator[PulledBlock | PullComplete, None], count: int) -> list[PulledBlock]:
    """The next blocks, not freed."""
    blocks = [await anext(events) for _ in range(count)]
    assert all(isinstance(block, PulledBlock) for block in blocks)
    return [block for block in blocks if isinstance(block, PulledBlock)]


async def abort_in_the_middle(reader: DataPlane, prompt: Prompt, seconds: float) -> None:
    """Begins a pull and gives it up."""
    pulling = asyncio.create_task(pull(reader, prompt))
    await asyncio.sleep(seconds)
    pulling.cancel()
    await asyncio.gather(pulling, return_exceptions=True)
    await at_rest(reader)


async def test_late_bytes_of_an_aborted_pull_do_not_hit_the_next_owner_of_its_memory(transport: str) -> None:
    """Case 3 of KV transfer: the owner is stopped in the middle of sending and goes on when the memory is another's."""
    async with trio(transport, geometry=MIB_BLOCKS, host_blocks=4, pull_window=4) as (ill, well, reader):
        await pull(reader, await sealed(ill, 1))
        for milliseconds in (0, 2, 5):
            late, next_ = await sealed(ill, 4), await sealed(well, 4)
            aborting = asyncio.create_task(abort_in_the_middle(reader, late, 0.1))
            await asyncio.sleep(milliseconds / 1000)
            async with standing_still(ill):
                await aborting
                await hold_and_compare(reader, next_, ill)
            await ill.withdraw(late.handle.handle_id, "aborted")
            await at_rest(ill, well, reader)


async def hold_and_compare(reader: DataPlane, prompt: Prompt, late: DataPlane) -> None:
    """Pulls a prompt, lets the late owner go on, and finds every byte where it was."""
    events = reader.pull("request", prompt.handle, range(4), 5.0)
    async with aclosing(events):
        blocks = await arrived(events, 4)
        os.kill(late.pid, signal.SIGCONT)
        await asyncio.sleep(0.3)
        for block in blocks:
            assert np.array_equal(reader.block(block.offset), prompt.contents[block.block_index])
            await take(reader, prompt, block)
        assert isinstance(await anext(events), PullComplete)


async def test_a_reader_that_outlives_its_lease_does_not_get_what_the_memory_holds_then(transport: str) -> None:
    """Case 9 of KV transfer: the reader is stopped while it reads, and the owner gives the memory to another prompt."""
    changes = {"geometry": MIB_BLOCKS, "host_blocks": 16, "lease_seconds": 0.3}
    async with duo(transport, **changes) as (owner, reader):
        for _ in range(3):
            prompt = await sealed(owner, 16)
            events = reader.pull("request", prompt.handle, range(16), 20.0)
            async with aclosing(events):
                for block in await arrived(events, 4):
                    await take(reader, prompt, block)
                async with standing_still(reader):
                    await at_rest(owner)
                    other = await sealed(owner, 16)
                with pytest.raises(TransferError):
                    await take_all(reader, prompt, events)
            await owner.withdraw(other.handle.handle_id, "done")
            await at_rest(owner, reader)


async def take_all(reader: DataPlane, prompt: Prompt, events: AsyncGenerator[PulledBlock | PullComplete, None]) -> None:
    """Compares whatever still arrives."""
    async for event in events:
        if isinstance(event, PulledBlock):
            await take(reader, prompt, event)
