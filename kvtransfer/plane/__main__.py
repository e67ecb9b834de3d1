"""`python -m kvtransfer.plane CONTROL_FD MEMORY_FD PARENT_PID FOLDER`: started by `kvtransfer.process`, never by hand.

The control socket carries one line each way: the `PlaneSpec`, then `{"endpoint": ...}` or `{"error": ...}`. Its end of
file means that the engine is gone.
"""

import asyncio
import json
import os
import signal
import socket
import sys
import threading
from contextlib import AsyncExitStack
from pathlib import Path

from halfmoon.errors import HalfmoonError
from halfmoon.telemetry import setup_logging, telemetry
from kvtransfer.plane.host import die_with_parent
from kvtransfer.plane.program import start_plane
from kvtransfer.region import Region
from kvtransfer.spec import PlaneSpec

_SERVICE = "data-plane"

_EXIT_SECONDS = 8.0
"""An orderly end that takes longer is cut short: no orphan stays behind."""


def main() -> int:
    """Runs until the parent ends or SIGTERM comes; 0 after an orderly end, 1 when it could not start."""
    control_fd, memory_fd, parent = (int(argument) for argument in sys.argv[1:4])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(parent)
    setup_logging(_SERVICE)
    with socket.socket(fileno=control_fd) as control:
        os.set_inheritable(control_fd, False)
        os.set_inheritable(memory_fd, False)
        return asyncio.run(_serve(control, Region.attach(memory_fd), Path(sys.argv[4])))


async def _serve(control: socket.socket, region: Region, folder: Path) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    control.setblocking(False)
    spec = PlaneSpec.from_json(await _line(control))
    region.forbid_new_writers()
    async with AsyncExitStack() as stack:
        stack.enter_context(telemetry(_SERVICE, spec.telemetry, name=f"{spec.worker_id}/{_SERVICE}"))
        stack.callback(_remove, folder)
        stack.callback(region.close)
        try:
            running = await start_plane(spec, region, folder, stack)
        except HalfmoonError as error:
            await _tell(control, {"error": error.message})
            return 1
        await _tell(control, {"endpoint": running.endpoint})
        loop.add_reader(control, stop.set)
        await stop.wait()
        loop.remove_reader(control)
        _bound_the_end()
    return 0


async def _line(control: socket.socket) -> str:
    loop = asyncio.get_running_loop()
    data = b""
    while not data.endswith(b"\n"):
        part = await loop.sock_recv(control, 65536)
        if not part:
            raise SystemExit(1)
        data += part
    return data.decode()


async def _tell(control: socket.socket, message: dict[str, str]) -> None:
    await asyncio.get_running_loop().sock_sendall(control, json.dumps(message).encode() + b"\n")


def _remove(folder: Path) -> None:
    """Sockets are removed with their folder, whoever made them."""
    for path in folder.glob("*.sock"):
        path.unlink(missing_ok=True)
    if folder.exists():
        folder.rmdir()


def _bound_the_end() -> None:
    timer = threading.Timer(_EXIT_SECONDS, os._exit, args=(2,))
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    sys.exit(main())
