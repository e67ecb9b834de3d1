"""Data planes in trouble: an owner that is ill, one that is well, and a reader; deadlines are short."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from halfmoon.config import PageGeometry
from kvtransfer import DataPlane, PlaneSpec
from tests.kvtransfer.planes import plane_spec, planes
from tests.kvtransfer.rig import byte_geometry

MIB = 1 << 20
MIB_BLOCKS: PageGeometry = byte_geometry(MIB)
"""Blocks of a mebibyte: a few of them are more than sockets buffer."""


def spec(worker_id: str, incarnation: int, transport: str, **changes: object) -> PlaneSpec:
    """A plane over one transport, whose reads and calls are bounded by 0.6 s; any field may be given."""
    fields: dict[str, object] = {
        "transports": (transport,),
        "read_seconds": 0.6,
        "connect_seconds": 0.6,
        "control_seconds": 0.6,
        **changes,
    }
    return plane_spec(worker_id, incarnation, **fields)


@asynccontextmanager
async def trio(transport: str, **changes: object) -> AsyncIterator[tuple[DataPlane, DataPlane, DataPlane]]:
    """An owner in trouble, a healthy one, and a reader of both."""
    names = ("ill", "well", "reader")
    async with planes(*(spec(name, i + 1, transport, **changes) for i, name in enumerate(names))) as (
        ill,
        well,
        reader,
    ):
        yield ill, well, reader


@asynccontextmanager
async def duo(transport: str, **changes: object) -> AsyncIterator[tuple[DataPlane, DataPlane]]:
    """An owner in trouble, and a reader with a window of four."""
    reader_spec = spec("reader", 3, transport, pull_window=4, **changes)
    async with planes(spec("ill", 1, transport, **changes), reader_spec) as (ill, reader):
        yield ill, reader


@asynccontextmanager
async def standing_still(plane: DataPlane) -> AsyncIterator[None]:
    """The process is stopped inside."""
    os.kill(plane.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(plane.pid, signal.SIGCONT)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@asynccontextmanager
async def black_hole() -> AsyncIterator[str]:
    """An address that never answers a connection, as that of a machine that was removed: its line is full."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        callers = [socket.socket() for _ in range(3)]
        for caller in callers:
            caller.setblocking(False)
            waiting = loop.sock_connect(caller, listener.getsockname())
            try:
                await asyncio.wait_for(waiting, 0.2)
            except TimeoutError:
                break
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            for caller in callers:
                caller.close()
