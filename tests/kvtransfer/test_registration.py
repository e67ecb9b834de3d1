"""Memory that cannot be made, handed over or mapped is an error that names itself; nobody goes on without it."""

import asyncio
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest

from halfmoon.errors import ConfigError, TransferError
from kvtransfer import DataPlane
from kvtransfer.transports.base import ReadStatus
from tests.kvtransfer.groups import MIB_BLOCKS, duo
from tests.kvtransfer.planes import at_rest, plane_spec, pull, sealed
from tests.kvtransfer.rig import GUARD, block, read, rig


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    """This process cannot open any inside."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_memory_whose_descriptor_got_lost_is_not_read(tmp_path: Path) -> None:
    """Case 11 of KV transfer: the kernel drops the descriptor of a reader that has no room for it."""
    async with rig("shm", tmp_path) as owner:
        key, offsets = await owner.offer(1)
        transport, local = owner.reader()
        began, go_on = owner.gate.pause()
        reading = asyncio.create_task(read(transport, key, [block(offsets[0])]))
        await asyncio.to_thread(began.wait, 5)
        with no_more_descriptors():
            go_on.set()
            assert await reading == [ReadStatus.PROTOCOL]
        assert (local.view(0, 4096) == GUARD).all()
        assert await read(transport, key, [block(offsets[0])]) == [ReadStatus.OK]
        assert np.array_equal(local.view(0, 4096), owner.bytes_at(offsets[0], 4096))


@contextmanager
def limited(plane: DataPlane, limit: int, value: int) -> Iterator[None]:
    """The process of a plane has a lower limit inside."""
    process = psutil.Process(plane.pid)
    soft, hard = process.rlimit(limit)
    process.rlimit(limit, (value, hard))
    try:
        yield
    finally:
        process.rlimit(limit, (soft, hard))


async def test_a_reader_that_cannot_map_its_peers_memory_fails_and_works_once_it_can() -> None:
    """Case 11 of KV transfer: registration failed and nobody looked."""
    async with duo("shm", geometry=MIB_BLOCKS, host_blocks=1024) as (owner, reader):
        prompt = await sealed(owner, 2)
        room = psutil.Process(reader.pid).memory_info().vms + (256 << 20)
        with limited(reader, psutil.RLIMIT_AS, room), pytest.raises(TransferError, match="PROTOCOL"):
            await pull(reader, prompt)
        assert not (await reader.stats()).bytes_read
        await pull(reader, prompt)
        await at_rest(owner, reader)


async def test_a_reader_without_descriptors_fails_and_works_once_it_has_some() -> None:
    """Case 11 of KV transfer, for connections."""
    async with duo("tcp") as (owner, reader):
        prompt = await sealed(owner, 2)
        held = psutil.Process(reader.pid).num_fds()
        with limited(reader, psutil.RLIMIT_NOFILE, held), pytest.raises(TransferError):
            await pull(reader, prompt)
        await pull(reader, prompt)
        await at_rest(owner, reader)


async def test_a_host_pool_that_does_not_fit_is_refused_at_the_start() -> None:
    """Case 11 of KV transfer, at the owner."""
    with pytest.raises(ConfigError, match="cannot map a host pool"):
        await DataPlane.start(plane_spec("owner", 1, geometry=MIB_BLOCKS, host_blocks=1 << 40))
