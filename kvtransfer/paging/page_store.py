"""An engine and the prefix store of its data plane, connected."""

import asyncio
import logging
import time
from functools import partial

from halfmoon.config import DEADLINES, PageGeometry
from halfmoon.engine.engine import Engine
from halfmoon.engine.request import Event, PagesOffered, PagesSought, SearchAbandoned, StoreLink
from kvtransfer.client import DataPlane
from kvtransfer.paging.keeper import PageKeeper
from kvtransfer.paging.restorer import PageRestorer
from kvtransfer.paging.reusable import ReusablePages
from kvtransfer.paging.store_news import StoreNews

_log = logging.getLogger(__name__)

_DRAIN_POLL = 0.02
"""Seconds between looks at what the engine has still to offer."""


class PageStore:
    """Belongs to the event loop that takes the engine's events. Close it while the engine still turns.

    What a `shared` store holds, others know too: it is asked for every prompt.
    """

    def __init__(
        self, engine: Engine, plane: DataPlane, geometry: PageGeometry, pages: ReusablePages, *, shared: bool = False
    ) -> None:
        self._engine = engine
        self._searches: dict[int, asyncio.Task[int]] = {}
        self._keeper = PageKeeper(engine, plane, lambda hashes: pages.store_changed(stored=hashes))
        self._restorer = PageRestorer(engine, plane, geometry)
        self._news = StoreNews(plane, pages)
        engine.connect_store(StoreLink(self._take, (lambda content: True) if shared else pages.in_store))

    @property
    def searches(self) -> int:
        """Prompts for which pages are being looked for."""
        return len(self._searches)

    async def drained(self, seconds: float) -> bool:
        """Waits until the store has all pages that the engine has to offer; whether that is so now."""
        deadline = time.monotonic() + seconds
        while self._engine.board.status.pages_to_keep or not self._keeper.idle:
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(_DRAIN_POLL)
        return True

    async def close(self) -> None:
        """Ends searches and offers, each in a bounded time."""
        await self._news.close()
        for task in self._searches.values():
            task.cancel()
        if self._searches:
            await asyncio.wait(list(self._searches.values()), timeout=DEADLINES.control)
        await self._keeper.close()

    def _take(self, event: Event) -> None:
        match event:
            case PagesOffered():
                self._keeper.add(event.hashes)
            case PagesSought():
                task = asyncio.create_task(self._restorer.restore(event))
                self._searches[event.search] = task
                task.add_done_callback(partial(self._searched, event.search))
            case SearchAbandoned():
                if event.search in self._searches:
                    self._searches[event.search].cancel()
            case _:
                pass

    def _searched(self, search: int, task: "asyncio.Task[int]") -> None:
        del self._searches[search]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a search for pages failed", exc_info=error)
