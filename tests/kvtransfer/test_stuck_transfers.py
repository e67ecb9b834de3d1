"""Transfers that get stuck end by their deadlines and leave nothing, and nobody else is slowed: real processes."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psutil
import pytest

from halfmoon.errors import TransferError
from kvtransfer import DataPlane
from kvtransfer.region import Region
from kvtransfer.transports.base import BlockRead, ReadKey, ReadStatus
from kvtransfer.transports.tcp import TcpTransport
from tests.kvtransfer.groups import black_hole, duo, standing_still, trio
from tests.kvtransfer.kinds import NAMES
from tests.kvtransfer.planes import Prompt, at_rest, offer, pull, sealed
from tests.kvtransfer.rig import read


@pytest.fixture(params=NAMES)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@asynccontextmanager
async def ends_within(seconds: float) -> AsyncIterator[None]:
    """Fails the test for a body that takes longer."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


async def failures(reader: DataPlane, prompt: Prompt, count: int, timeout: float) -> None:  # noqa: ASYNC109
    """Several pulls of one prompt at once, all of which must fail."""
    pulls = (pull(reader, prompt, timeout=timeout) for _ in range(count))
    endings = await asyncio.gather(*pulls, return_exceptions=True)
    assert [type(ending) for ending in endings if not isinstance(ending, TransferError)] == []


async def test_every_state_of_a_transfer_has_a_deadline_and_its_failure_is_told(transport: str) -> None:
    """Case 4 of KV transfer: a failed transfer was only logged, the waiting request stayed for ever."""
    async with duo(transport) as (owner, reader):
        never_sealed = await offer(owner, 4)
        await never_sealed.publish(4)
        async with ends_within(2.0):
            with pytest.raises(TransferError, match="TRANSFERRING until its deadline"):
                await pull(reader, never_sealed, timeout=0.4)
        never_answered = await sealed(owner, 4)
        async with standing_still(owner), ends_within(4.0):
            with pytest.raises(TransferError):
                await pull(reader, never_answered, timeout=10.0)
        async with ends_within(4.0):
            with pytest.raises(TransferError, match=r"handshake|PENDING"):
                async with standing_still(owner):
                    await pull(reader, never_answered, timeout=10.0)
        for prompt in (never_sealed, never_answered):
            await owner.withdraw(prompt.handle.handle_id, "done")
        await at_rest(owner, reader)
        assert (await reader.stats()).transfers_ended["FAILED"] == 3


async def test_stuck_transfers_leak_nothing_however_often(transport: str) -> None:
    """Case 5 of KV transfer: slots leaked in the middle state until nothing moved any more."""
    async with trio(transport) as (ill, well, reader):
        held: list[tuple[int, int]] = []
        for _ in range(3):
            await pull(reader, await sealed(ill, 1))
            prompt = await sealed(ill, 4)
            async with standing_still(ill):
                await failures(reader, prompt, 20, timeout=0.5)
                await at_rest(reader)
            await ill.withdraw(prompt.handle.handle_id, "done")
            async with ends_within(2.0):
                await pull(reader, await sealed(well, 20))
            process = psutil.Process(reader.pid)
            held.append((process.num_fds(), process.num_threads()))
        assert held[2][0] <= held[1][0] + 2, held
        assert held[2][1] <= held[1][1] + 2, held
        await at_rest(ill, well, reader)


async def test_a_removed_peer_costs_a_bounded_connect_and_delays_nobody(transport: str) -> None:
    """Case 6 of KV transfer: connecting blocked for minutes and stalled healthy peers."""
    async with duo(transport) as (well, reader), black_hole() as nowhere:
        lost = await sealed(well, 4)
        lost.handle.endpoint = nowhere
        lost.handle.owner_incarnation += 1
        async with ends_within(5.0):
            failing = asyncio.create_task(failures(reader, lost, 8, timeout=20.0))
            await asyncio.sleep(0.05)
            for _ in range(5):
                async with ends_within(1.0):
                    await pull(reader, await sealed(well, 4))
            await failing
        await well.withdraw(lost.handle.handle_id, "done")
        await at_rest(well, reader)


async def test_a_transport_that_cannot_connect_says_so_by_its_own_bound() -> None:
    """Case 6 of KV transfer, below the handshake: the deadline of the read is far away."""
    async with black_hole() as nowhere:
        local = Region.create(4096)
        transport = TcpTransport(nowhere, connect_seconds=0.3)
        transport.register(local)
        async with ends_within(2.0):
            statuses = await read(transport, ReadKey(bytes(16), 1), [BlockRead(0, 0, 4096, 0)], seconds=30.0)
        assert set(statuses) <= {ReadStatus.UNREACHABLE, ReadStatus.TIMEOUT}
        transport.close()
        local.close()
