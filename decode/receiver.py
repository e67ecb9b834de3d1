"""From a peer's handle to pages of this engine."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing

import numpy as np

from decode.device_receiver import DeviceReceiver
from halfmoon.cache.hashing import page_hashes
from halfmoon.config import PageGeometry
from halfmoon.engine.engine import Engine
from halfmoon.errors import TransferError
from halfmoon.v1 import kvtransfer_pb2
from halfmoon.wire import geometry_from_pb
from kvtransfer import DataPlane, PullComplete, PulledBlock
from kvtransfer.device import DevicePlane


def check_handle(handle: kvtransfer_pb2.KvHandle, prompt: Sequence[int], salt: bytes, geometry: PageGeometry) -> None:
    """Raises TransferError unless the handle's blocks are the pages of this prompt: what counts is their content."""
    if geometry_from_pb(handle.geometry) != geometry:
        raise TransferError(f"the handle's pages are {geometry_from_pb(handle.geometry)}, this worker's {geometry}")
    expected = page_hashes(salt, prompt, geometry.page_size)
    offered = [block.content_hash for block in handle.blocks if block.content_hash]
    if len(handle.blocks) != geometry.pages_for(len(prompt)) or offered != expected:
        raise TransferError(f"the handle's {len(handle.blocks)} blocks are not the pages of this prompt")


class Receiver:
    """Brings a peer's pages into one engine: from device to device where both sides can, else through the host pool."""

    def __init__(
        self, engine: Engine, plane: DataPlane, geometry: PageGeometry, devices: DevicePlane | None = None
    ) -> None:
        self._engine = engine
        self._plane = plane
        self._devices = None if devices is None else DeviceReceiver(engine, devices.reader, geometry)
        self._shape, self._dtype = geometry.shape, np.dtype(geometry.dtype)

    async def receive(
        self,
        request_id: str,
        handle: kvtransfer_pb2.KvHandle,
        missing: Sequence[int],
        seconds: float,
        page_held: Callable[[], None] = lambda: None,
    ) -> PullComplete:
        """Pulls the missing pages into the engine, where the request is to be attached then. Raises TransferError.

        `page_held` is called for each page that came through the host pool, as soon as the engine has it.
        """
        if self._devices is None or not handle.device_endpoint:
            return await self._pull(request_id, handle, missing, seconds, page_held)
        deadline = time.monotonic() + seconds
        fetched = await self._devices.fetch(request_id, handle, missing, seconds)
        if fetched.first_tokens is not None:
            return PullComplete(fetched.first_tokens, fetched.bytes, fetched.transport, fetched.seconds)
        rest = [page for page in missing if page not in fetched.pages]
        complete = await self._pull(request_id, handle, rest, deadline - time.monotonic(), page_held)
        return PullComplete(
            complete.first_tokens,
            complete.bytes + fetched.bytes,
            complete.transport or fetched.transport,
            complete.seconds + fetched.seconds,
        )

    async def _pull(
        self,
        request_id: str,
        handle: kvtransfer_pb2.KvHandle,
        missing: Sequence[int],
        seconds: float,
        page_held: Callable[[], None],
    ) -> PullComplete:
        async with aclosing(self._plane.pull(request_id, handle, missing, seconds)) as events:
            async for event in events:
                if isinstance(event, PullComplete):
                    return event
                await self._deliver(request_id, event)
                page_held()
        raise TransferError(f"the transfer of request {request_id} ended without a seal")

    async def _deliver(self, request_id: str, pulled: PulledBlock) -> None:
        """The host block goes back when the engine has read it, however this ends."""
        try:
            await self._copy(request_id, pulled)
        finally:
            await self._plane.free_blocks([pulled.offset])

    async def _copy(self, request_id: str, pulled: PulledBlock) -> None:
        """Returns, also when it is cancelled meanwhile, when the engine has read the block."""
        view = self._plane.block(pulled.offset).view(self._dtype).reshape(self._shape)
        delivered = asyncio.wrap_future(self._engine.deliver(request_id, pulled.block_index, view))
        try:
            await asyncio.shield(delivered)
        except asyncio.CancelledError:
            await delivered
            raise
