"""What is said to have arrived has arrived, at every size: real processes, stopped in the middle of their transfers."""

import asyncio
from contextlib import aclosing, suppress

import pytest

from halfmoon.errors import TransferError
from kvtransfer import PullComplete
from tests.kvtransfer.groups import MIB_BLOCKS, duo, standing_still
from tests.kvtransfer.kinds import NAMES
from tests.kvtransfer.planes import FIRST, at_rest, offer, pull, sealed, take
from tests.kvtransfer.rig import byte_geometry


@pytest.fixture(params=NAMES)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_an_owner_does_not_let_go_before_its_reader_has_applied_everything(transport: str) -> None:
    """Case 1 of KV transfer: sent into a socket's buffer is not complete."""
    async with duo(transport) as (owner, reader):
        prompt = await offer(owner, 8)
        await prompt.publish(2)
        pulling = asyncio.create_task(pull(reader, prompt))
        await asyncio.sleep(0.3)
        async with standing_still(reader):
            await prompt.publish(6)
            await prompt.seal(FIRST)
            await asyncio.sleep(0.5)
            stats = await owner.stats()
            assert (stats.handles_open, stats.host_blocks_used) == (1, 8)
            assert not pulling.done()
        order, complete = await pulling
        assert len(order) == 8
        assert isinstance(complete, PullComplete)
        await at_rest(owner, reader)


async def test_an_owner_that_stops_while_it_sends_has_delivered_whole_blocks_or_none(transport: str) -> None:
    """Case 1 of KV transfer: the receiver saw torn blocks."""
    async with duo(transport, geometry=MIB_BLOCKS) as (owner, reader):
        for milliseconds in (0, 1, 2, 4, 8):
            prompt = await sealed(owner, 24)
            seen = 0
            async with aclosing(reader.pull("request", prompt.handle, range(24), 5.0)) as events:
                await asyncio.sleep(milliseconds / 1000)
                with suppress(TransferError):
                    async for event in events:
                        if isinstance(event, PullComplete):
                            assert seen == 24
                            break
                        seen += 1
                        if seen == 2:
                            async with standing_still(owner):
                                await take(reader, prompt, event)
                                await asyncio.sleep(milliseconds / 100)
                        else:
                            await take(reader, prompt, event)
            await owner.withdraw(prompt.handle.handle_id, "done")
        await at_rest(owner, reader)


@pytest.mark.parametrize("block_bytes", [2, (9 << 20) + 6])
async def test_blocks_of_every_size_arrive(transport: str, block_bytes: int) -> None:
    """Case 2 of KV transfer: over 4 MiB, bytes were silently wrong."""
    async with duo(transport, geometry=byte_geometry(block_bytes), host_blocks=6, read_seconds=5.0) as (owner, reader):
        _, complete = await pull(reader, await sealed(owner, 5))
        assert complete.bytes == 5 * block_bytes
        await at_rest(owner, reader)
