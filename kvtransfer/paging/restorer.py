"""Pages of a prompt are brought back from the prefix store, the own one or a peer's, instead of being computed."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

import numpy as np

from halfmoon.config import PageGeometry
from halfmoon.engine.engine import Engine
from halfmoon.engine.request import PagesSought
from halfmoon.errors import HalfmoonError, TransferError
from halfmoon.v1 import kvtransfer_pb2
from kvtransfer.client import DataPlane
from kvtransfer.core.avoided import AvoidedPeers
from kvtransfer.events import PullComplete

_log = logging.getLogger(__name__)

_LEAST_SECONDS = 0.5
"""What a search may take however little there is to compute: calls wait for the engine's step under way."""

_UNMEASURED_SECONDS = 2.0
"""What it may take where nobody knows how long the pages would take to compute."""

_AVOID_SECONDS = 10.0
"""For so long a peer is not asked again after it did not answer, or gave what cannot be used."""

_PAGES_AT_ONCE = 4
"""Pages that the engine takes between two steps."""

_PAGES_PER_LEASE = 32
"""What a lease covers counts once it has been given back: so much is lost at most when time runs out."""


@dataclass(slots=True)
class _Search:
    """`found` pages are right; the engine `waits` until it says otherwise; `asking` is the peer whose turn it is."""

    sought: PagesSought
    deadline: float
    found: int = 0
    waits: bool = True
    asking: str = ""

    @property
    def rest(self) -> tuple[bytes, ...]:
        """What is still to be found."""
        return self.sought.hashes[self.found :] if self.waits else ()

    @property
    def seconds_left(self) -> float:
        """Until the rest is computed."""
        return max(0.0, self.deadline - asyncio.get_running_loop().time())


class PageRestorer:
    """Ends every search that it is given, in no more time than it would take to compute the pages."""

    def __init__(self, engine: Engine, plane: DataPlane, geometry: PageGeometry) -> None:
        self._engine = engine
        self._plane = plane
        self._shape, self._dtype = geometry.shape, np.dtype(geometry.dtype)
        self._avoided = AvoidedPeers(_AVOID_SECONDS)

    async def restore(self, sought: PagesSought) -> int:
        """Looks in the own store, then where the request says. Returns how many leading pages were found."""
        bound = max(_LEAST_SECONDS, sought.seconds or _UNMEASURED_SECONDS)
        search = _Search(sought, asyncio.get_running_loop().time() + bound)
        try:
            async with asyncio.timeout_at(search.deadline):
                await self._from_own_store(search)
                await self._from_peer(search)
        except (HalfmoonError, TimeoutError) as error:
            if search.asking:
                self._avoided.failed(search.asking, asyncio.get_running_loop().time())
            _log.warning(
                "pages were not found in time",
                extra={"request_id": sought.request_id, "found": search.found, "error": str(error) or "too late"},
            )
        finally:
            self._engine.end_search(sought.search, search.found)
        return search.found

    async def _from_own_store(self, search: _Search) -> None:
        """Lease by lease, until the store has no more."""
        while search.rest:
            lease = await self._plane.store.acquire(search.rest[:_PAGES_PER_LEASE], search.seconds_left)
            filled = 0
            try:
                filled = await self._fill(search, search.found, lease.offsets)
            finally:
                alive = await self._plane.store.release(lease)
            if not alive or not filled:
                return
            search.found += filled

    async def _from_peer(self, search: _Search) -> None:
        source, first = search.sought.source, search.sought.first
        if source is None or not (wanted := search.rest[: max(0, source.pages - first - search.found)]):
            return
        if self._avoided.avoids(source.endpoint, asyncio.get_running_loop().time()):
            return
        search.asking = source.endpoint
        handle = await self._plane.store.acquire_from(source.endpoint, wanted, search.seconds_left)
        if handle is not None:
            _check_handle(handle, wanted)
            search.found += await self._pull(search, handle)

    async def _pull(self, search: _Search, handle: kvtransfer_pb2.KvHandle) -> int:
        """All pages of the handle, or none."""
        pages = range(len(handle.blocks))
        pulling = self._plane.pull(search.sought.request_id, handle, pages, search.seconds_left)
        async with aclosing(pulling) as events:
            async for event in events:
                if isinstance(event, PullComplete):
                    return len(pages) if search.waits else 0
                try:
                    await self._fill(search, search.found + event.block_index, [event.offset])
                finally:
                    await self._plane.free_blocks([event.offset])
        raise TransferError("the transfer ended without a seal")

    async def _fill(self, search: _Search, place: int, offsets: Sequence[int]) -> int:
        """Host blocks become the pages from `place` of those sought; returns how many of them did."""
        for start in range(0, len(offsets), _PAGES_AT_ONCE):
            part = offsets[start : start + _PAGES_AT_ONCE]
            if not search.waits or not await self._copy(search.sought, place + start, part):
                search.waits = False
                return start
        return len(offsets)

    async def _copy(self, sought: PagesSought, place: int, offsets: Sequence[int]) -> bool:
        """Returns, also when it is cancelled meanwhile, when the engine has read the blocks."""
        views = [self._plane.block(each).view(self._dtype).reshape(self._shape) for each in offsets]
        filling = asyncio.wrap_future(self._engine.fill_pages(sought.search, sought.first + place, views))
        try:
            return await asyncio.shield(filling)
        except asyncio.CancelledError:
            await filling
            raise


def _check_handle(handle: kvtransfer_pb2.KvHandle, wanted: Sequence[bytes]) -> None:
    held = [block.content_hash for block in handle.blocks]
    if held != list(wanted[: len(held)]):
        raise TransferError(f"the handle's {len(held)} blocks are not the pages asked for")
