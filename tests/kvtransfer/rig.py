"""An owner with real blocks and one transport server in this process, and readers of it."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from halfmoon.config import PageGeometry
from kvtransfer.checksum import block_checksum
from kvtransfer.plane.host_blocks import HostBlocks
from kvtransfer.plane.owner import Owner
from kvtransfer.proofs import new_handle_id
from kvtransfer.region import Region
from kvtransfer.spec import PlaneSpec
from kvtransfer.transports.base import BlockRead, Grant, ReadKey, ReadStatus, StopSignal, Transport
from kvtransfer.transports.lease_board import LeaseBoard
from tests.kvtransfer.kinds import kind_named

INCARNATION = 0xFEED
GUARD = 0xA5


def byte_geometry(block_bytes: int) -> PageGeometry:
    """A geometry whose blocks have an even number of bytes."""
    return PageGeometry(layers=1, kv_heads=1, page_size=block_bytes // 2, head_dim=1, dtype="uint8")


class Gate:
    """A `ReadGate` that a test can make wait, or have something happen in the middle of a read."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self.incarnation = owner.incarnation
        self.region = owner.region
        self.board = owner.board
        self.on_begin: Callable[[], object] = lambda: None
        self.on_end: Callable[[], object] = lambda: None
        self.on_ended: Callable[[], object] = lambda: None

    def pause(self) -> tuple[threading.Event, threading.Event]:
        """From now on reads set the first event when they begin, and wait for the second."""
        began, go_on = threading.Event(), threading.Event()

        def wait() -> None:
            began.set()
            go_on.wait(5)

        self.on_begin = wait
        return began, go_on

    def secret_of(self, tag: bytes) -> bytes | None:
        return self._owner.secret_of(tag)

    def begin(self, handle_id: bytes, reads: Sequence[BlockRead], refuse: Callable[[], None]) -> Grant | None:
        grant = self._owner.begin(handle_id, reads, refuse)
        self.on_begin()
        return grant

    def end(self, grant: Grant) -> bool:
        self.on_end()
        alive = self._owner.end(grant)
        self.on_ended()
        return alive


class Rig:
    """`block_count` blocks of random bytes; everything in it is taken down by `rig`."""

    def __init__(
        self, transport: str, folder: Path, spec: PlaneSpec, address: str = "", *, board: bool = False
    ) -> None:
        self.spec = spec
        self.layout = spec.layout
        self.region = Region.create(spec.layout.total_bytes)
        self.blocks = HostBlocks(spec)
        self._board = LeaseBoard(spec.layout) if board else None
        self.owner = Owner(spec, self.region, self.blocks, self._board)
        self.gate = Gate(self.owner)
        self.name = transport
        self._readers: list[tuple[Transport, Region]] = []
        rng = np.random.default_rng(spec.incarnation)
        self.region.view(0, self.region.size)[:] = rng.integers(0, 255, self.region.size, dtype=np.uint8)
        self._kind = kind_named(transport)
        self.server = self._kind.serve(self.gate, folder, address)

    async def offer(self, count: int, *, published: int | None = None) -> tuple[ReadKey, list[int]]:
        """The key of a handle and the offsets of its blocks; sealed when all are published."""
        handle = await self.owner.offer(new_handle_id(), "request", count, 30.0)
        ready = count if published is None else published
        offsets = [self.layout.offset(block) for block in handle.blocks]
        sums = [block_checksum(self.region.view(offset, self.layout.block_bytes)) for offset in offsets[:ready]]
        self.owner.publish(handle.handle_id, 0, sums)
        if ready == count:
            self.owner.seal(handle.handle_id, b"")
        return ReadKey(handle.handle_id, self.spec.incarnation), offsets

    def reader(self, size: int = 1 << 20) -> tuple[Transport, Region]:
        """A transport with `size` bytes of local memory, all GUARD."""
        local = Region.create(size)
        local.view(0, size)[:] = GUARD
        transport = self._kind.connect(self.server.address)
        transport.register(local)
        self._readers.append((transport, local))
        return transport, local

    def bytes_at(self, offset: int, length: int) -> NDArray[np.uint8]:
        return self.region.view(offset, length)

    def close(self) -> None:
        for transport, local in self._readers:
            transport.close()
            local.close()
        self.server.close()
        if self._board is not None:
            self._board.close()
        assert (self.server.connection_count, self.owner.read_count) == (0, 0)
        self.region.close()


@asynccontextmanager
async def rig(
    transport: str,
    folder: Path,
    *,
    block_bytes: int = 4096,
    block_count: int = 8,
    lease: float = 30.0,
    incarnation: int = INCARNATION,
    address: str = "",
    board: bool = True,
) -> AsyncIterator[Rig]:
    """A rig that is gone, with all its threads, when the body ends. Without a `board`, `shm` readers always ask."""
    geometry = byte_geometry(block_bytes)
    spec = PlaneSpec("owner", incarnation, "model", geometry, block_count, lease_seconds=lease, read_seconds=0.5)
    made = Rig(transport, folder, spec, address, board=board)
    try:
        yield made
    finally:
        await asyncio.to_thread(made.close)


async def read(
    transport: Transport,
    key: ReadKey,
    reads: Sequence[BlockRead],
    *,
    seconds: float = 5.0,
    stop: StopSignal | None = None,
) -> list[ReadStatus]:
    """One batch, in a thread."""
    deadline = time.monotonic() + seconds
    return await asyncio.to_thread(
        lambda: transport.read_batch(key, reads, deadline=deadline, stop=stop or StopSignal())
    )


def block(offset: int, local: int = 0, length: int = 4096) -> BlockRead:
    """A page of the host pool, to byte `local`."""
    return BlockRead(0, offset, length, local)


async def eventually(holds: Callable[[], bool], seconds: float = 5.0) -> None:
    """Returns when it holds; fails the test when it does not in time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not holds():  # noqa: ASYNC110 - what is waited for happens in other threads and processes
                await asyncio.sleep(0.01)
    assert holds()
