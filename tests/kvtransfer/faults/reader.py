"""A data plane that runs in the test's own process, over faulty transports."""

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from unittest import mock

from kvtransfer import DataPlane, PlaneSpec
from kvtransfer.plane.names import ENGINE_SOCKET
from kvtransfer.plane.program import start_plane
from kvtransfer.process import PlaneProcess
from kvtransfer.region import Region
from kvtransfer.transports.choice import open_transport
from tests.kvtransfer.faults.injector import Injector


@dataclass
class _HereProcess:
    """What a `DataPlane` needs to know of the process, which is this one."""

    address: str
    endpoint: str
    pid: int = 0

    async def close(self) -> None:
        """The plane is taken down by who made it."""


@asynccontextmanager
async def faulty_reader(spec: PlaneSpec, injector: Injector) -> AsyncIterator[DataPlane]:
    """A plane whose reads go through `injector`; all of it is gone in the end."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kv-")))
        stack.enter_context(mock.patch("kvtransfer.plane.peer.open_transport", injector.around(open_transport)))
        engines = Region.create(spec.layout.total_bytes)
        own = Region.attach(os.dup(engines.fd))
        stack.callback(own.close)
        running = await start_plane(spec, own, folder, stack)
        process = _HereProcess(f"unix:{folder / ENGINE_SOCKET}", running.endpoint)
        plane = DataPlane(spec, engines, cast("PlaneProcess", process))
        try:
            yield plane
        finally:
            await plane.close()
