"""Device pages that an engine offers go to the prefix store."""

import asyncio
import logging
from collections.abc import Callable, Sequence

import jax
import numpy as np

from halfmoon.config import DEADLINES
from halfmoon.engine.engine import Engine
from halfmoon.errors import HalfmoonError
from kvtransfer.client import DataPlane
from kvtransfer.filling import fill_block
from kvtransfer.store.client import StorePlace

_log = logging.getLogger(__name__)


class PageKeeper:
    """Answers every offer, one after the other. What the store has no room for is not copied.

    `on_kept` is called with the pages that the store has from then on.
    """

    def __init__(self, engine: Engine, plane: DataPlane, on_kept: Callable[[Sequence[bytes]], None]) -> None:
        self._engine = engine
        self._plane = plane
        self._on_kept = on_kept
        self._offers: asyncio.Queue[tuple[bytes, ...] | None] = asyncio.Queue()
        self._open = 0
        self._task = asyncio.create_task(self._run())

    @property
    def idle(self) -> bool:
        """Whether every offer has been dealt with."""
        return self._open == 0

    def add(self, hashes: tuple[bytes, ...]) -> None:
        """Takes an offer."""
        self._open += 1
        self._offers.put_nowait(hashes)

    async def close(self) -> None:
        """Ends when the offers taken have been dealt with, or after a while without them."""
        self._offers.put_nowait(None)
        await asyncio.wait([self._task], timeout=DEADLINES.control)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while (hashes := await self._offers.get()) is not None:
            try:
                await self._keep(hashes)
            except HalfmoonError as error:
                _log.warning("pages are not kept", extra={"pages": len(hashes), "error": str(error)})
            self._open -= 1

    async def _keep(self, hashes: Sequence[bytes]) -> None:
        places: list[StorePlace] = []
        try:
            places = await self._plane.store.put_begin(hashes)
        finally:  # the engine waits for an answer before it offers more
            copying = self._engine.copy_pages([place.content_hash for place in places])
        checksums: list[int | None] = [None] * len(places)
        try:
            pages = await asyncio.wrap_future(copying)
            checksums = await asyncio.to_thread(self._fill, places, pages)
        finally:
            await self._plane.store.put_end(places, checksums)
        written = zip(places, checksums, strict=True)
        self._on_kept([place.content_hash for place, checksum in written if checksum is not None])

    def _fill(self, places: Sequence[StorePlace], pages: Sequence[jax.Array | None]) -> list[int | None]:
        return [
            None if page is None else fill_block(np.asarray(page), self._plane.block(place.offset))
            for place, page in zip(places, pages, strict=True)
        ]
