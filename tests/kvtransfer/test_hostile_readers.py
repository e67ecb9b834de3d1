"""What an owner does with readers that do not know the secret, or do not behave; for `shm` and `tcp` alike."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from kvtransfer.transports import wire
from kvtransfer.transports.base import ReadStatus
from tests.kvtransfer.raw_reader import RawReader
from tests.kvtransfer.rig import Rig, block, eventually, rig


@pytest.fixture(params=["shm", "tcp"])
async def owner(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(str(request.param), tmp_path) as made:
        yield made


async def test_the_public_name_of_a_handle_does_not_help_to_read(owner: Rig) -> None:
    """Case 12 of KV transfer: a read needs the handle's secret."""
    key, offsets = await owner.offer(1)

    def attack() -> None:
        with RawReader(owner.name, owner.server.address) as reader:
            reply, fds = reader.ask(*reader.forged(key, block(offsets[0])))
            assert (reply.status, fds) == (ReadStatus.BAD_PROOF, 0)
            assert reader.is_closed_by_peer()

    await asyncio.to_thread(attack)


async def test_a_proof_is_good_for_its_own_ranges_alone(owner: Rig) -> None:
    key, offsets = await owner.offer(2)

    def attack() -> None:
        with RawReader(owner.name, owner.server.address) as reader:
            request, _ = reader.request(key, block(offsets[0]))
            reply, _ = reader.ask(request, wire.pack_ranges([block(offsets[1])]))
            assert reply.status is ReadStatus.BAD_PROOF

    await asyncio.to_thread(attack)


async def test_a_recorded_request_does_not_work_on_another_connection(owner: Rig) -> None:
    key, offsets = await owner.offer(1)

    def attack() -> None:
        with (
            RawReader(owner.name, owner.server.address) as first,
            RawReader(owner.name, owner.server.address) as second,
        ):
            recorded = first.request(key, block(offsets[0]))
            reply, _ = second.ask(*recorded)
            assert reply.status is ReadStatus.BAD_PROOF
            reply, _ = first.ask(*recorded)
            assert reply.status is ReadStatus.OK

    await asyncio.to_thread(attack)


@pytest.mark.parametrize("count", [0, wire.MAX_READS + 1, 1 << 31])
async def test_absurd_counts_close_the_connection(owner: Rig, count: int) -> None:
    key, offsets = await owner.offer(1)

    def attack() -> None:
        with RawReader(owner.name, owner.server.address) as reader:
            request, ranges = reader.request(key, block(offsets[0]))
            reader.sock.send(replace(request, count=count).pack() + ranges)
            assert reader.is_closed_by_peer()

    await asyncio.to_thread(attack)


async def test_noise_closes_the_connection(owner: Rig) -> None:
    def attack() -> None:
        with RawReader(owner.name, owner.server.address) as reader:
            reader.sock.send(b"GET / HTTP/1.1\r\n" * 20)
            assert reader.is_closed_by_peer()

    await asyncio.to_thread(attack)


async def test_a_reader_that_says_nothing_is_closed(owner: Rig) -> None:
    with RawReader(owner.name, owner.server.address) as reader:
        assert await asyncio.to_thread(reader.is_closed_by_peer)
    await eventually(lambda: owner.server.connection_count == 0)


async def test_a_reader_that_takes_too_long_is_refused_and_then_the_blocks_are_free(tmp_path: Path) -> None:
    """Over `shm`; over `tcp` the owner itself moves the bytes, and its socket's deadline ends the read."""
    async with rig("shm", tmp_path) as owner:
        key, offsets = await owner.offer(8)

        def read_and_stall() -> bytes:
            with RawReader(owner.name, owner.server.address) as reader:
                reply, fds = reader.ask(*reader.request(key, block(offsets[0])))
                assert (reply.status, fds) == (ReadStatus.OK, 2)
                owner.owner.release(key.handle_id)
                assert owner.blocks.used_count == 8
                return reader.sock.recv(wire.TRAILER_BYTES)

        stalling = asyncio.create_task(asyncio.to_thread(read_and_stall))
        while not stalling.done():
            await asyncio.sleep(0.02)
            owner.owner.expire()
        assert await stalling == b""
        await eventually(lambda: owner.blocks.used_count == 0)


async def test_a_reader_that_does_not_take_what_it_asked_for_is_refused_too(tmp_path: Path) -> None:
    """Over `tcp`, more than sockets buffer: the blocks are free once the grace of their ended handle is over."""
    size = 8 << 20
    async with rig("tcp", tmp_path, block_bytes=size, block_count=4) as owner:
        key, offsets = await owner.offer(4)
        with RawReader(owner.name, owner.server.address) as reader:
            request, ranges = reader.request(key, *(block(offset, 0, size) for offset in offsets))
            reply, _ = await asyncio.to_thread(reader.ask, request, ranges)
            assert reply.status is ReadStatus.OK
            owner.owner.release(key.handle_id)
            assert owner.blocks.used_count == 4

            def freed() -> bool:
                owner.owner.expire()
                return owner.blocks.used_count == 0

            await eventually(freed)
        await eventually(lambda: owner.server.connection_count == 0)


async def test_a_reader_that_goes_away_in_the_middle_leaves_no_read_behind(owner: Rig) -> None:
    key, offsets = await owner.offer(8)

    def read_and_leave() -> None:
        with RawReader(owner.name, owner.server.address) as reader:
            reader.ask(*reader.request(key, block(offsets[0])))

    await asyncio.to_thread(read_and_leave)
    await eventually(lambda: owner.server.connection_count == 0)
    owner.owner.release(key.handle_id)
    await eventually(lambda: owner.blocks.used_count == 0)
