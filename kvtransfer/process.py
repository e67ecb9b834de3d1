"""Starting the data-plane process, learning of its death, and ending it."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from halfmoon.errors import ConfigError, DeadlineError, UnavailableError
from kvtransfer.environment import plane_environment
from kvtransfer.plane.names import ENGINE_SOCKET
from kvtransfer.region import Region
from kvtransfer.spec import PlaneSpec

_START_SECONDS = 60.0
_END_SECONDS = 10.0
_PACKAGE_ROOT = str(Path(__file__).resolve().parent.parent)
_LONGEST_FOLDER = 80
"""Names of unix sockets have at most 107 bytes."""


class PlaneProcess:
    """The running process. `died` resolves with its exit code when it has ended, for whatever reason."""

    def __init__(self, process: "subprocess.Popen[bytes]", control: socket.socket, folder: Path) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._control = control
        self._folder = folder
        self._pidfd = os.pidfd_open(process.pid)
        self.endpoint = ""
        self.died: asyncio.Future[int] = self._loop.create_future()
        self._loop.add_reader(self._pidfd, self._reap)

    @classmethod
    async def start(cls, spec: PlaneSpec, region: Region) -> "PlaneProcess":
        """Returns when it serves. Raises ConfigError when it cannot, UnavailableError when it dies, DeadlineError."""
        ours, theirs = socket.socketpair()
        folder = _private_folder()
        try:
            with theirs:
                process = _spawn(theirs.fileno(), region.fd, folder)
        except OSError as error:
            ours.close()
            folder.rmdir()
            raise ConfigError(f"cannot start the data plane: {error}") from error
        started = cls(process, ours, folder)
        try:
            await started._shake_hands(spec)
        except BaseException:
            await started.close()
            raise
        return started

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def address(self) -> str:
        """Where it serves `DataPlane`, as a gRPC target."""
        return f"unix:{self._folder / ENGINE_SOCKET}"

    async def close(self) -> None:
        """Asks it to end, and kills it when it does not; removes its folder. Idempotent."""
        self._control.close()
        if not self.died.done():
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self.died), _END_SECONDS)
        if not self.died.done():
            self._process.kill()
            await self.died

    async def _shake_hands(self, spec: PlaneSpec) -> None:
        self._control.setblocking(False)
        try:
            async with asyncio.timeout(_START_SECONDS):
                await self._loop.sock_sendall(self._control, spec.to_json().encode() + b"\n")
                answer = json.loads(await self._line())
        except TimeoutError as error:
            raise DeadlineError(f"the data plane did not start in {_START_SECONDS:.0f} s") from error
        except OSError as error:
            raise UnavailableError("the data plane died while it started; its log tells why") from error
        if "error" in answer:
            raise ConfigError(f"the data plane cannot start: {answer['error']}")
        self.endpoint = str(answer["endpoint"])

    async def _line(self) -> bytes:
        data = b""
        while not data.endswith(b"\n"):
            part = await self._loop.sock_recv(self._control, 65536)
            if not part:
                raise ConnectionResetError
            data += part
        return data

    def _reap(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.died.set_result(self._process.wait())
        self._remove_folder()

    def _remove_folder(self) -> None:
        """The process does it itself unless it was killed."""
        with suppress(FileNotFoundError):
            for path in self._folder.glob("*.sock"):
                path.unlink(missing_ok=True)
            self._folder.rmdir()


def _spawn(control_fd: int, memory_fd: int, folder: Path) -> "subprocess.Popen[bytes]":
    """With the engine's own code, whatever the working directory holds."""
    arguments = [str(control_fd), str(memory_fd), str(os.getpid()), str(folder)]
    inherited = os.environ.get("PYTHONPATH", "")
    path = f"{_PACKAGE_ROOT}{os.pathsep}{inherited}" if inherited else _PACKAGE_ROOT
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "kvtransfer.plane", *arguments],
        pass_fds=(control_fd, memory_fd),
        stdin=subprocess.DEVNULL,
        env={**plane_environment(os.environ), "PYTHONPATH": path},
    )


def _private_folder() -> Path:
    """For sockets that nobody else can reach: mode 0700, in the user's runtime folder or a temporary one."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    usable = bool(runtime) and len(runtime) <= _LONGEST_FOLDER and os.access(runtime, os.W_OK)
    folder = Path(tempfile.mkdtemp(prefix="halfmoon-kv-", dir=runtime if usable else None))
    if len(str(folder)) > _LONGEST_FOLDER:
        folder.rmdir()
        raise ConfigError(f"the temporary folder {folder.parent} has too long a name for sockets: set TMPDIR")
    return folder
