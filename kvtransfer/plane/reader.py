"""Moves the blocks of one pull: in batches, over the streams of the transport, into a bounded window of host blocks."""

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence

from halfmoon.v1 import kvtransfer_pb2 as pb
from kvtransfer.core.block_queue import Lane
from kvtransfer.core.pool import BlockOwner, Use
from kvtransfer.core.transfer import Transfer
from kvtransfer.plane.batching import batch_blocks
from kvtransfer.plane.block_fetch import WantedBlock
from kvtransfer.plane.context import PlaneContext
from kvtransfer.plane.peer import Peer
from kvtransfer.plane.progress import HandleProgress
from kvtransfer.plane.tasks import first_error_group
from kvtransfer.transports.base import BlockRead, ReadKey


class BlockReader:
    """Blocks are FILLING until verified, then DELIVERED and told to `deliver(block_index, offset)`."""

    def __init__(
        self,
        context: PlaneContext,
        transfer: Transfer,
        request: pb.PullRequest,
        deliver: Callable[[int, int], None],
    ) -> None:
        self._context = context
        self._transfer = transfer
        self._handle = request.handle
        self._key = ReadKey(request.handle.handle_id, request.handle.owner_incarnation)
        self._deliver = deliver
        self._filling = BlockOwner(Use.FILLING, request.pull_id)
        self._delivered = BlockOwner(Use.DELIVERED, request.pull_id)
        self._pending = list(request.block_indices)
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()
        self.began: float | None = None
        self.ended = 0.0
        self.transport = ""

    async def run(self, peer: Peer, progress: HandleProgress) -> None:
        """Returns when all blocks are delivered. However it ends, nothing is written any more, no block FILLING."""
        try:
            async with first_error_group() as group:
                for _ in range(peer.streams):
                    group.create_task(self._read_batches(peer, progress))
        finally:
            self._context.blocks.release(self._context.blocks.held_by(self._filling), self._filling)

    def window_moved(self) -> None:
        """The engine has freed blocks of this pull."""
        self._freed.set()

    async def _read_batches(self, peer: Peer, progress: HandleProgress) -> None:
        while batch := await self._next_batch(progress, peer.streams):
            await self._read(peer, batch)

    async def _next_batch(self, progress: HandleProgress, streams: int) -> Sequence[WantedBlock]:
        """The next blocks that are ready and have a place to go to; empty when none is left."""
        async with self._turn:
            if not self._pending:
                return ()
            await progress.wait_ready(self._pending[0])
            ready = bisect_left(self._pending, progress.ready_count)
            batch = batch_blocks(ready, streams, self._context.spec.layout.block_bytes)
            most = min(batch, ready, await self._window())
            places = await self._context.blocks.acquire(self._filling, Lane.PULL, 1, most, self._transfer.deadline)
            indices, self._pending = self._pending[: len(places)], self._pending[len(places) :]
            return [self._wanted(progress, index, place) for index, place in zip(indices, places, strict=True)]

    async def _window(self) -> int:
        """How many more host blocks this pull may hold: at least one."""
        while True:
            self._freed.clear()
            blocks = self._context.blocks
            held = len(blocks.held_by(self._filling)) + len(blocks.held_by(self._delivered))
            if held < self._context.spec.pull_window:
                return self._context.spec.pull_window - held
            await self._freed.wait()

    def _wanted(self, progress: HandleProgress, index: int, place: int) -> WantedBlock:
        block = self._handle.blocks[index]
        local_offset = self._context.spec.layout.offset(place)
        read = BlockRead(block.region, block.offset, block.length, local_offset)
        return WantedBlock(index, read, progress.checksum(index), place)

    async def _read(self, peer: Peer, batch: Sequence[WantedBlock]) -> None:
        if self.began is None:
            self.began = time.monotonic()
        self.transport = await peer.fetch(self._key, batch, deadline=self._transfer.deadline)
        self.ended = time.monotonic()
        for block in batch:
            self._transfer.mark_verified(block.index)
            self._context.blocks.hand_over(block.host_block, self._filling, self._delivered)
            self._context.delivered[block.host_block] = block.index
            self._context.meters.bytes_read[self.transport] += block.read.length
            self._deliver(block.index, block.read.local_offset)
