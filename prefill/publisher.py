"""From device pages to host blocks: copies a prompt's pages out while later ones are still computed."""

import asyncio
from collections.abc import Sequence

import numpy as np

from halfmoon.cache.hashing import page_hashes
from halfmoon.config import DEADLINES, PageGeometry
from halfmoon.engine.request import PagesReady
from halfmoon.errors import LeaseExpiredError
from halfmoon.request import OutputToken
from halfmoon.telemetry import OpenSpan
from halfmoon.telemetry import conventions as names
from halfmoon.v1 import kvtransfer_pb2
from kvtransfer import DataPlane
from kvtransfer.device import DevicePlane
from kvtransfer.filling import fill_block


def offered_blocks(prompt: Sequence[int], salt: bytes, geometry: PageGeometry) -> list[kvtransfer_pb2.KvBlock]:
    """The blocks of a prompt as they are offered: content hash of each full page, tokens of each."""
    size = geometry.page_size
    blocks = [kvtransfer_pb2.KvBlock(content_hash=each, tokens=size) for each in page_hashes(salt, prompt, size)]
    rest = len(prompt) % size
    return [*blocks, kvtransfer_pb2.KvBlock(tokens=rest)] if rest else blocks


class Publisher:
    """Fills the blocks of one handle in order, in a task of its own, so that the first token does not wait for it.

    With `devices`, whose handle lives for `seconds` while it is unsealed, the pages are kept on the device, and their
    copies wait until it is known whether the reader takes everything from there.
    """

    def __init__(
        self,
        plane: DataPlane,
        handle: kvtransfer_pb2.KvHandle,
        devices: DevicePlane | None = None,
        *,
        seconds: float = DEADLINES.request,
    ) -> None:
        self._plane = plane
        self._handle = handle
        self._devices = devices
        if devices is not None:
            handle.device_endpoint = devices.endpoint
            devices.owner.open(handle.handle_id, len(handle.blocks), seconds)
        self._span: OpenSpan | None = None
        self._queue: asyncio.Queue[PagesReady | None] = asyncio.Queue()
        self._task = asyncio.create_task(self._run())

    def add(self, pages: PagesReady) -> None:
        """Queues complete pages."""
        if self._span is None:
            self._span = OpenSpan("publish", {names.KV_PAGES: len(self._handle.blocks)})
        self._queue.put_nowait(pages)
        if self._devices is not None:
            self._devices.owner.add(self._handle.handle_id, pages.first, pages.blocks)

    async def seal(self, first: Sequence[OutputToken]) -> None:
        """Waits until all pages are published, or taken from the device, and seals the handle.

        Raises what publishing raised.
        """
        handle_id = self._handle.handle_id
        if self._devices is not None:
            self._devices.owner.seal(handle_id, first)
        self._queue.put_nowait(None)
        try:
            if await self._task:
                await self._plane.withdraw(handle_id, "read from the device")
            else:
                await self._plane.seal(handle_id, first)
        except LeaseExpiredError:
            if self._devices is None or not self._devices.owner.was_taken(handle_id):
                raise
            await self._plane.withdraw(handle_id, "read from the device")
        self._end_span()

    async def cancel(self) -> None:
        """Stops copying; returns when nothing is written any more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._devices is not None:
            self._devices.owner.drop(self._handle.handle_id, "the prefill ended early")
        self._end_span(asyncio.CancelledError())

    def _end_span(self, error: BaseException | None = None) -> None:
        if self._span is not None:
            self._span.end(error)

    async def _run(self) -> bool:
        """Whether nothing had to be published."""
        if self._devices is not None and await self._devices.owner.taken(self._handle.handle_id):
            return True
        while (pages := await self._queue.get()) is not None:
            copying = asyncio.create_task(asyncio.to_thread(self._copy, pages))
            try:
                checksums = await asyncio.shield(copying)
            except asyncio.CancelledError:
                await copying
                raise
            ready = await self._plane.publish(self._handle.handle_id, pages.first, checksums)
            if self._span is not None:
                self._span.event("published", {names.KV_PAGES: ready})
        return False

    def _copy(self, pages: PagesReady) -> list[int]:
        checksums: list[int] = []
        for array, count in pages.blocks:
            for block in np.asarray(array)[:count]:
                target = self._plane.block(self._handle.blocks[pages.first + len(checksums)].offset)
                checksums.append(fill_block(block, target))
        return checksums
