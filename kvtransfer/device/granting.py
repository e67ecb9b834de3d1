"""One reader's way through a handle: which arrays it is granted, and which of them it still holds."""

import asyncio
import functools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence

from jax import Array

from halfmoon.errors import DeadlineError, LeaseExpiredError, TransferError
from halfmoon.v1 import devicetransfer_pb2 as pb
from kvtransfer.device.block_hash import hash_values
from kvtransfer.device.link import DeviceLink
from kvtransfer.device.pieces import Placement
from kvtransfer.device.shelf import Part, Shelved
from kvtransfer.device.spec import DeviceSpec


class Granting:
    """Grants the arrays that hold `wanted` blocks, ascending, each cut into `pieces`."""

    def __init__(
        self,
        spec: DeviceSpec,
        link: DeviceLink,
        placement: Placement,
        entry: "Shelved[Array]",
        *,
        wanted: Sequence[int],
        pieces: int,
        deadline: float,
    ) -> None:
        self.entry = entry
        self._spec = spec
        self._link = link
        self._placement = placement
        self._wanted = wanted
        self._pieces = pieces
        self._deadline = deadline
        self._held: set[int] = set()
        self._left = False
        self._complete = False
        self._changed = asyncio.Event()

    def look(self) -> None:
        """Something has changed about the entry."""
        self._changed.set()

    async def listen(self, requests: AsyncIterator[pb.FetchRequest]) -> None:
        """Takes back what the reader returns, until it says no more."""
        async for request in requests:
            if request.HasField("complete"):
                self._complete = True
            self._link.returned(request.done.grant_id)
            self._held.discard(request.done.grant_id)
            self._changed.set()
        self._left = True
        self._changed.set()

    async def grants(self) -> AsyncGenerator[pb.FetchGrant, None]:
        """One for each array, as pages are complete; ends when the reader has returned all, and the seal is known.

        Raises LeaseExpiredError when the handle ends, DeadlineError at the deadline, TransferError when the reader has
        left.
        """
        granted = 0
        for block in self._wanted:
            if block < granted:
                continue
            await self._wait(functools.partial(self._grantable, block))
            part = self.entry.find(block)
            granted = part.end
            yield await self._grant(part)
        await self._wait(lambda: not self._held and self.entry.seal is not None)

    async def until_complete(self) -> None:
        """Returns when the reader says that it has everything. Raises as `grants` does."""
        await self._wait(lambda: self._complete)

    def _grantable(self, block: int) -> bool:
        return block < self.entry.ready and len(self._held) < self._spec.window

    async def _grant(self, part: "Part[Array]") -> pb.FetchGrant:
        hashes = await asyncio.to_thread(hash_values, part.blocks)
        seconds = self._spec.grant_seconds
        grant_id = self._link.lend(self._placement.cut(part.blocks, self._pieces), seconds)
        self._held.add(grant_id)
        return pb.FetchGrant(
            grant_id=grant_id,
            first_block=part.first,
            pages=part.blocks.shape[0],
            hashes=hashes[: part.count],
            ttl_ms=round(seconds * 1000),
        )

    async def _wait(self, ready: Callable[[], bool]) -> None:
        while not ready():
            if self.entry.failure:
                raise LeaseExpiredError(f"the owner ended the handle: {self.entry.failure}")
            if self._left:
                raise TransferError("the reader left before it was done")
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), self._deadline - time.monotonic())
            except TimeoutError:
                raise DeadlineError("the reader's deadline came before all pages were granted") from None
