"""Owner processes that get killed, restarted at their old address, stopped and continued."""

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import replace

from halfmoon.errors import HalfmoonError
from kvtransfer import DataPlane, PlaneSpec
from tests.kvtransfer.groups import free_port
from tests.kvtransfer.planes import plane_spec


class MortalOwner:
    """One address, at which one process after another owns blocks."""

    def __init__(self, spec: PlaneSpec) -> None:
        self.spec = spec
        self.deaths = 0
        self.stops = 0
        self._plane: DataPlane | None = None
        self._alive = asyncio.Event()
        self._turn = asyncio.Lock()

    @classmethod
    async def start(cls, worker_id: str, incarnation: int, transports: tuple[str, ...]) -> "MortalOwner":
        """The first process."""
        spec = plane_spec(
            worker_id,
            incarnation,
            transports=transports,
            port=free_port(),
            tcp_port=free_port(),
            host_blocks=128,
            lease_seconds=3.0,
            read_seconds=0.5,
            control_seconds=0.5,
        )
        owner = cls(spec)
        await owner._live()
        return owner

    async def plane(self) -> DataPlane:
        """The process that lives now, or the next one."""
        await self._alive.wait()
        assert self._plane is not None
        return self._plane

    async def restart(self) -> None:
        """Kills the process; another one with other memory takes its address."""
        async with self._turn:
            await self._die()
            self.spec = replace(self.spec, incarnation=self.spec.incarnation + 1)
            await self._live()

    async def stand_still(self, seconds: float) -> None:
        """Stops the process for a while."""
        async with self._turn:
            plane = await self.plane()
            os.kill(plane.pid, signal.SIGSTOP)
            self.stops += 1
            try:
                await asyncio.sleep(seconds)
            finally:
                os.kill(plane.pid, signal.SIGCONT)

    async def close(self) -> None:
        """Ends the last process."""
        if self._plane is not None:
            await self._plane.close()

    async def _live(self) -> None:
        self._plane = await DataPlane.start(self.spec)
        self._alive.set()

    async def _die(self) -> None:
        plane = await self.plane()
        self._alive.clear()
        os.kill(plane.pid, signal.SIGKILL)
        self.deaths += 1
        await asyncio.shield(plane.died)
        await plane.close()


async def withdraw(plane: DataPlane, handle_id: bytes) -> None:
    """Ends a handle, if the process that knew it is still there."""
    with suppress(HalfmoonError):
        await plane.withdraw(handle_id, "done")
