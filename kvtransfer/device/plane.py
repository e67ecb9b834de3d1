"""One worker's device transfer as a whole."""

import asyncio
from typing import Self

from kvtransfer.device.link import DeviceLink
from kvtransfer.device.owner import DeviceOwner
from kvtransfer.device.pieces import Placement
from kvtransfer.device.reader import DeviceReader
from kvtransfer.device.spec import DeviceSpec


class DevicePlane:
    """Owner and reader over one link. `endpoint` is where peers find the owner's service: set it once that serves."""

    def __init__(self, spec: DeviceSpec, link: DeviceLink, placement: Placement) -> None:
        self.endpoint = ""
        self.link = link
        self.owner = DeviceOwner(spec, link, placement)
        self.reader = DeviceReader(spec, link, placement)

    @classmethod
    async def start(cls, spec: DeviceSpec, placement: Placement, host: str, advertised_host: str = "") -> Self:
        """Listens on `host` for what peers reach at `advertised_host`. The placement must be warm."""
        return cls(spec, await asyncio.to_thread(DeviceLink, host, advertised_host), placement)

    @property
    def gauges(self) -> dict[str, int]:
        """What is held now by name; all zero at rest."""
        return {
            "device_bytes": self.owner.nbytes,
            "device_handles": self.owner.handle_count,
            "device_grants": self.link.lent_count,
            "device_readers": self.owner.fetch_count,
            "device_fetches": self.reader.fetch_count,
            "device_fetches_abandoned": self.reader.abandoned_count,
        }

    async def close(self) -> None:
        """Ends what others may read here."""
        await self.owner.close()
