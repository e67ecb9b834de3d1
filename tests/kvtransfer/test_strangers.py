"""Nobody reads from the wrong process, and no stranger reads at all: real data planes."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import numpy as np
import pytest

from halfmoon.errors import LeaseExpiredError, StaleIncarnationError, TransferError
from halfmoon.rpc import error_from_rpc, open_channel
from halfmoon.v1 import kvtransfer_pb2 as pb
from halfmoon.v1 import kvtransfer_pb2_grpc as rpc
from kvtransfer import DataPlane
from kvtransfer.proofs import new_handle_id
from kvtransfer.transports.base import BlockRead, ReadKey, ReadStatus
from tests.kvtransfer.groups import free_port, spec
from tests.kvtransfer.kinds import NAMES
from tests.kvtransfer.planes import GEOMETRY, Prompt, at_rest, planes, pull, sealed
from tests.kvtransfer.raw_reader import RawReader


@pytest.fixture(params=NAMES)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def moved_to(prompt: Prompt, plane: DataPlane) -> pb.KvHandle:
    """The handle with the address of another process."""
    handle = pb.KvHandle()
    handle.CopyFrom(prompt.handle)
    handle.endpoint = plane.endpoint
    return handle


async def test_another_process_at_the_address_is_found_out_before_a_byte_is_read(transport: str) -> None:
    """Case 8 of KV transfer: of two instances, the wrong one answered. Even one of the same incarnation is refused."""
    owners = [spec("owner", 1, transport), spec("other", 2, transport), spec("impostor", 1, transport)]
    async with planes(*owners, spec("reader", 3, transport)) as (owner, other, impostor, reader):
        assert len({owner.endpoint, other.endpoint, impostor.endpoint, reader.endpoint}) == 4
        prompt = await sealed(owner, 2)
        await sealed(other, 2)
        await sealed(impostor, 2)
        with pytest.raises(StaleIncarnationError):
            await pull(reader, prompt, handle=moved_to(prompt, other))
        with pytest.raises(LeaseExpiredError):
            await pull(reader, prompt, handle=moved_to(prompt, impostor))
        assert not (await reader.stats()).bytes_read
        assert not reader.block(0).any()
        await pull(reader, prompt)
        await at_rest(owner, reader)


@pytest.fixture
async def door() -> AsyncIterator[tuple[DataPlane, Prompt, str]]:
    """An owner with a sealed prompt, and the address of its `tcp` transport, which anyone can reach."""
    port = free_port()
    async with planes(spec("owner", 1, "tcp", tcp_port=port)) as (owner,):
        yield owner, await sealed(owner, 2), f"127.0.0.1:{port}"


def whole(prompt: Prompt, index: int) -> BlockRead:
    """Block `index` of a prompt."""
    return BlockRead(0, prompt.handle.blocks[index].offset, GEOMETRY.block_bytes, 0)


async def test_who_reaches_the_port_without_the_secret_reads_nothing(door: tuple[DataPlane, Prompt, str]) -> None:
    """Case 12 of KV transfer: anyone who could reach the port could read any memory."""
    _, prompt, address = door
    key = ReadKey(prompt.handle.handle_id, 1)

    def attack() -> None:
        with RawReader("tcp", address) as reader:
            reply, _ = reader.ask(*reader.forged(key, whole(prompt, 0)))
            assert reply.status is ReadStatus.BAD_PROOF
            assert reader.is_closed_by_peer()
        with RawReader("tcp", address) as reader:
            guessed = reader.request(ReadKey(new_handle_id(), 1), whole(prompt, 0))
            assert reader.ask(*guessed)[0].status is ReadStatus.LEASE_EXPIRED
            assert reader.is_closed_by_peer()

    await asyncio.to_thread(attack)


async def test_with_the_secret_only_the_handles_own_blocks_can_be_named(door: tuple[DataPlane, Prompt, str]) -> None:
    """Case 12 of KV transfer: only registered ranges."""
    owner, prompt, address = door
    stranger = await sealed(owner, 1)
    good, beside = whole(prompt, 1), whole(stranger, 0)
    ranges = [beside, BlockRead(0, 1 << 40, 1, 0), BlockRead(7, good.offset, 1, 0), good]
    bad = ReadStatus.BAD_RANGE

    def read_all() -> tuple[bytes, bytes]:
        with RawReader("tcp", address) as reader:
            reply, _ = reader.ask(*reader.request(ReadKey(prompt.handle.handle_id, 1), *ranges))
            assert reply.status is ReadStatus.OK
            return reader.exactly(len(ranges)), reader.exactly(GEOMETRY.block_bytes)

    statuses, payload = await asyncio.to_thread(read_all)
    assert list(statuses) == [bad, bad, bad, ReadStatus.OK]
    assert np.array_equal(np.frombuffer(payload, dtype=np.uint8), prompt.contents[1])


async def test_the_control_port_tells_nothing_without_the_secret(door: tuple[DataPlane, Prompt, str]) -> None:
    """Case 12 of KV transfer, at the other port: the public name of a handle is not its id."""
    owner, prompt, _ = door
    async with open_channel(owner.endpoint) as channel:
        stub: rpc.KvTransferAsyncStub = rpc.KvTransferStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Renew(pb.RenewRequest(handle_id=new_handle_id(), expected_incarnation=1), timeout=2.0)
        assert isinstance(error_from_rpc(refused.value), TransferError)
        assert not (await stub.Release(pb.ReleaseRequest(handle_id=new_handle_id()), timeout=2.0)).released
    assert (await owner.stats()).handles_open == 1
    await owner.withdraw(prompt.handle.handle_id, "done")
