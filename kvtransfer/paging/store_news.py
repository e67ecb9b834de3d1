"""Follows what the prefix store of a data plane holds."""

import asyncio
import logging

from halfmoon.errors import HalfmoonError
from kvtransfer.client import DataPlane
from kvtransfer.paging.reusable import ReusablePages

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.25


class StoreNews:
    """Asks four times a second until closed, and keeps `pages` up to date."""

    def __init__(self, plane: DataPlane, pages: ReusablePages) -> None:
        self._plane = plane
        self._pages = pages
        self._version = 0
        self._task = asyncio.create_task(self._poll())

    async def close(self) -> None:
        """Stops asking."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def refresh(self) -> None:
        """Asks now."""
        news = await self._plane.store.changes(self._version)
        if news.whole:
            self._pages.replace_store(news.stored)
        else:
            self._pages.store_changed(news.stored, news.removed)
        self._version = news.version

    async def _poll(self) -> None:
        while True:
            try:
                await self.refresh()
            except HalfmoonError as error:
                _log.warning("the prefix store does not say what it holds", extra={"error": error})
            await asyncio.sleep(_POLL_SECONDS)
