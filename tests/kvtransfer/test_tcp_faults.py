"""`tcp` over a network that cuts, flips and stalls: an error or the right bytes, never wrong ones."""

import asyncio
import time
from pathlib import Path

import numpy as np
import pytest

from halfmoon.errors import TransferError
from kvtransfer.checksum import block_checksum
from kvtransfer.plane.block_fetch import WantedBlock, fetch_blocks
from kvtransfer.region import Region
from kvtransfer.transports import wire
from kvtransfer.transports.base import BlockRead, ReadKey, ReadStatus, StopSignal
from kvtransfer.transports.tcp import TcpTransport
from tests.kvtransfer.proxy import Fault, proxy
from tests.kvtransfer.rig import GUARD, Rig, read, rig

BLOCK = 4096
TOTAL = wire.GREETING_BYTES + wire.REPLY_BYTES + 2 + 2 * BLOCK + wire.TRAILER_BYTES
EDGES = (0, 10, wire.GREETING_BYTES, wire.GREETING_BYTES + wire.REPLY_BYTES, TOTAL - 5000, TOTAL - 12, TOTAL - 1)


def wanted(owner: Rig, offsets: list[int]) -> list[WantedBlock]:
    return [
        WantedBlock(index, BlockRead(0, offset, BLOCK, BLOCK * index), block_checksum(owner.bytes_at(offset, BLOCK)), 0)
        for index, offset in enumerate(offsets)
    ]


@pytest.mark.parametrize("kind", ["cut", "stall"])
async def test_a_connection_that_ends_anywhere_is_an_error_and_is_not_used_again(kind: str, tmp_path: Path) -> None:
    async with rig("tcp", tmp_path) as owner:
        key, offsets = await owner.offer(2)
        blocks = wanted(owner, offsets)
        with proxy(owner.server.address) as network:
            local = Region.create(2 * BLOCK)
            transport = TcpTransport(network.address, connect_seconds=0.3)
            transport.register(local)
            for edge in EDGES:
                network.fault = Fault(kind, edge)
                began = time.monotonic()
                statuses = await read(transport, key, [block.read for block in blocks], seconds=0.1)
                assert set(statuses) <= {ReadStatus.UNREACHABLE, ReadStatus.TIMEOUT}
                assert time.monotonic() - began < 1.0
                network.fault = Fault()
                assert await read(transport, key, [block.read for block in blocks]) == [ReadStatus.OK] * 2
                transport.close()
                transport = TcpTransport(network.address, connect_seconds=0.3)
                transport.register(local)
            transport.close()
            local.close()


async def test_a_byte_that_flips_anywhere_is_found(tmp_path: Path) -> None:
    async with rig("tcp", tmp_path) as owner:
        key, offsets = await owner.offer(2)
        blocks = wanted(owner, offsets)
        found = 0
        with proxy(owner.server.address) as network:
            for at in range(3, TOTAL, 211):
                network.fault = Fault("flip", at)
                found += not await asyncio.to_thread(fetch_is_right, network.address, owner, key, blocks)
        assert found == len(range(3, TOTAL, 211)) - harmless_flips()


def harmless_flips() -> int:
    """What the greeting reserves, and the size of the pool, which only `shm` needs, carry nothing here."""
    unused = {6, 7, *range(wire.GREETING_BYTES - 8, wire.GREETING_BYTES)}
    return sum(at in unused for at in range(3, TOTAL, 211))


def fetch_is_right(address: str, owner: Rig, key: ReadKey, blocks: list[WantedBlock]) -> bool:
    """Whether a fetch succeeded; fails the test when it did with wrong bytes."""
    local = Region.create(2 * BLOCK)
    transport = TcpTransport(address, connect_seconds=0.5)
    transport.register(local)
    try:
        deadline = time.monotonic() + 0.5
        fetch_blocks(transport, local, key, blocks, read_seconds=0.5, deadline=deadline, stop=StopSignal())
    except TransferError:
        return False
    finally:
        transport.close()
    for block in blocks:
        theirs = owner.bytes_at(block.read.offset, BLOCK)
        assert np.array_equal(local.view(block.read.local_offset, BLOCK), theirs)
    return True


async def test_an_owner_that_does_not_know_the_secret_cannot_place_a_byte(tmp_path: Path) -> None:
    """Case 8 of KV transfer: another process took the port. Its reply lacks the proof, nothing of it is received."""
    async with rig("tcp", tmp_path) as owner:
        key, offsets = await owner.offer(2)
        blocks = wanted(owner, offsets)
        with proxy(owner.server.address) as network:
            network.fault = Fault("flip", wire.GREETING_BYTES + wire.REPLY_BYTES - 1)
            local = Region.create(2 * BLOCK)
            local.view(0, 2 * BLOCK)[:] = GUARD
            transport = TcpTransport(network.address, connect_seconds=0.5)
            transport.register(local)
            statuses = await read(transport, key, [block.read for block in blocks])
            assert statuses == [ReadStatus.BAD_PROOF] * 2
            assert (local.view(0, 2 * BLOCK) == GUARD).all()
            transport.close()
            local.close()
