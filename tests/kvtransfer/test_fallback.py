"""A transport that fails is left for the next one, and tried again when its time comes."""

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from halfmoon.rpc import open_channel
from halfmoon.v1 import kvtransfer_pb2 as pb
from halfmoon.v1 import kvtransfer_pb2_grpc as rpc
from halfmoon.wire import geometry_to_pb
from kvtransfer import DataPlane
from kvtransfer.core.transport_choice import FIRST_SECONDS
from kvtransfer.plane.host import boot_id
from tests.kvtransfer.planes import GEOMETRY, at_rest, plane_spec, planes, pull, sealed


@dataclass
class Pair:
    """Two workers of one machine; `socket_path` is where the owner's `shm` listens."""

    owner: DataPlane
    reader: DataPlane
    socket_path: Path

    async def choices(self) -> dict[tuple[str, str], int]:
        stats = await self.reader.stats()
        return {(each.transport, each.reason): each.count for each in stats.transport_choices}


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    names = ("shm", "tcp")
    specs = (plane_spec("owner", 1, transports=names), plane_spec("reader", 2, transports=names))
    async with planes(*specs) as (owner, reader):
        yield Pair(owner, reader, await shm_address(owner))
        await at_rest(owner, reader)


async def shm_address(owner: DataPlane) -> Path:
    """As the owner tells it to a reader of its machine."""
    prompt = await sealed(owner, 1)
    async with open_channel(prompt.handle.endpoint) as channel:
        stub: rpc.KvTransferAsyncStub = rpc.KvTransferStub(channel)
        hello = await stub.Hello(
            pb.HelloRequest(
                boot_id=boot_id(), model_fingerprint="model", geometry=geometry_to_pb(GEOMETRY), transports=["shm"]
            ),
            timeout=5.0,
        )
    await owner.withdraw(prompt.handle.handle_id, "seen")
    return Path(hello.transports[0].address)


@contextmanager
def broken(path: Path) -> Iterator[None]:
    """Something else listens at the socket's path, and hangs up on everybody."""
    away = path.with_suffix(".away")
    path.rename(away)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=_hang_up, args=(listener,))
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5.0)
            os.replace(away, path)


def _hang_up(listener: socket.socket) -> None:
    while True:
        try:
            listener.accept()[0].close()
        except OSError:
            return


async def test_both_sides_best_transport_is_taken_and_counted(pair: Pair) -> None:
    _, complete = await pull(pair.reader, await sealed(pair.owner, 4))
    assert complete.transport == "shm"
    assert await pair.choices() == {("shm", "best"): 1}


async def test_a_pull_goes_on_over_the_next_transport_and_later_ones_try_the_better_one_again(pair: Pair) -> None:
    with broken(pair.socket_path):
        for _ in range(2):
            _, complete = await pull(pair.reader, await sealed(pair.owner, 4))
            assert complete.transport == "tcp"
    assert (await pair.choices())["tcp", "fallback"] >= 1
    await asyncio.sleep(FIRST_SECONDS * 2)
    _, complete = await pull(pair.reader, await sealed(pair.owner, 4))
    assert complete.transport == "shm"
    assert (await pair.choices())["shm", "retry"] >= 1


async def test_a_transport_that_the_other_side_lacks_is_not_taken() -> None:
    specs = (plane_spec("owner", 1, transports=("mooncake",)), plane_spec("reader", 2, transports=("shm", "mooncake")))
    async with planes(*specs) as (owner, reader):
        _, complete = await pull(reader, await sealed(owner, 4))
        assert complete.transport == "mooncake"
        await at_rest(owner, reader)
