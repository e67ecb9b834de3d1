"""A data plane that runs in the test's own process, over faulty transports."""

import os
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from unittest import mock

from halfmoon.v1 import kvtransfer_pb2 as pb
from kvtransfer import DataPlane, PlaneSpec
from kvtransfer.plane.names import ENGINE_SOCKET
from kvtransfer.plane.program import start_plane
from kvtransfer.process import PlaneProcess
from kvtransfer.region import Region
from kvtransfer.transports.base import ReadKey, Transport
from kvtransfer.transports.choice import open_transport
from tests.kvtransfer.faults.misdeeds import Misdeed, Plan
from tests.kvtransfer.faults.transport import FaultyTransport


class Injector:
    """The plans of handles, and what came of them."""

    def __init__(self) -> None:
        self.plans: dict[bytes, Plan] = {}
        self.committed: Counter[Misdeed] = Counter()

    def plan_of(self, key: ReadKey) -> Plan:
        """Nothing happens to unknown handles."""
        return self.plans.get(key.handle_id, Plan(""))

    def open(self, endpoints: Iterable[pb.TransportEndpoint], *, connect_seconds: float) -> Transport:
        """As `open_transport`, with faults."""
        inner = open_transport(endpoints, connect_seconds=connect_seconds)
        return FaultyTransport(inner, self.plan_of, self.committed)


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
        stack.enter_context(mock.patch("kvtransfer.plane.peer.open_transport", injector.open))
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
