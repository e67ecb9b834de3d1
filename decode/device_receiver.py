"""From the devices of a peer to this engine's pages, as far as that goes: what is left comes through the host pool."""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from decode.lease import keep_lease_of, release
from halfmoon.config import PageGeometry
from halfmoon.engine.engine import Engine
from halfmoon.errors import HalfmoonError, LeaseExpiredError
from halfmoon.request import OutputToken
from halfmoon.v1 import kvtransfer_pb2
from kvtransfer.core.avoided import AvoidedPeers
from kvtransfer.device import DeviceReader, FetchedPages, FetchedSeal

_log = logging.getLogger(__name__)

_AVOID_SECONDS = 30.0
"""How long a peer's devices are left alone after a fetch from them failed."""


@dataclass(slots=True)
class Fetched:
    """What has come from the devices: `pages` of the handle, `bytes` of the wanted ones, in `seconds`.

    `first_tokens` are there when nothing is left to come.
    """

    pages: set[int] = field(default_factory=set)
    bytes: int = 0
    seconds: float = 0.0
    first_tokens: tuple[OutputToken, ...] | None = None

    @property
    def transport(self) -> str:
        """Empty when no page was moved."""
        return "jax" if self.bytes else ""


class DeviceReceiver:
    """Brings fetched pages into one engine."""

    def __init__(self, engine: Engine, reader: DeviceReader, geometry: PageGeometry) -> None:
        self._engine = engine
        self._reader = reader
        self._block_bytes = geometry.block_bytes
        self._avoided = AvoidedPeers(_AVOID_SECONDS)

    async def fetch(
        self, request_id: str, handle: kvtransfer_pb2.KvHandle, missing: Sequence[int], seconds: float
    ) -> Fetched:
        """Fetches as many of the `missing` pages as can be had into their places; keeps the handle alive meanwhile."""
        fetched = Fetched()
        endpoint = handle.device_endpoint
        if self._avoided.avoids(endpoint, time.monotonic()):
            return fetched
        keeping = asyncio.create_task(keep_lease_of(handle))
        began = time.monotonic()
        try:
            await self._fetch(request_id, handle, missing, seconds, fetched)
            await release(handle)
        except HalfmoonError as error:
            fields = {"request_id": request_id, "at": endpoint, "reason": error.message}
            _log.warning("pages did not come from device to device", extra=fields)
            if not isinstance(error, LeaseExpiredError):
                self._avoided.failed(endpoint, time.monotonic())
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        fetched.bytes = self._block_bytes * len(fetched.pages.intersection(missing))
        fetched.seconds = time.monotonic() - began
        return fetched

    async def _fetch(
        self,
        request_id: str,
        handle: kvtransfer_pb2.KvHandle,
        missing: Sequence[int],
        seconds: float,
        fetched: Fetched,
    ) -> None:
        async with aclosing(self._reader.fetch(handle, missing, seconds)) as arrived:
            async for event in arrived:
                if isinstance(event, FetchedSeal):
                    fetched.first_tokens = event.first_tokens
                else:
                    await self._deliver(request_id, event)
                    fetched.pages.update(range(event.first, event.first + event.count))

    async def _deliver(self, request_id: str, pages: FetchedPages) -> None:
        delivering = self._engine.deliver_array(request_id, pages.first, pages.count, pages.blocks)
        await asyncio.wrap_future(delivering)
