"""The data-plane process: how it starts, how it ends, and that it leaves nothing behind."""

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from halfmoon.errors import ConfigError, TransferError, UnavailableError
from halfmoon.v1 import kvtransfer_pb2 as pb
from kvtransfer import DataPlane, PlaneSpec
from tests.kvtransfer.planes import at_rest, offer, plane_spec, planes, pull, sealed

ROOT = Path(__file__).parents[2]

ENGINE = """
import asyncio, sys
from halfmoon.v1 import kvtransfer_pb2 as pb
from kvtransfer import DataPlane
from tests.kvtransfer.planes import plane_spec

async def main():
    plane = await DataPlane.start(plane_spec("worker", 1))
    print(plane.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""

UNDER_UVLOOP = """
import asyncio, uvloop
from tests.kvtransfer.planes import at_rest, planes, plane_spec, pull, sealed

async def main():
    async with planes(plane_spec("a", 1), plane_spec("b", 2)) as (owner, reader):
        await pull(reader, await sealed(owner, 5))
        await at_rest(owner, reader)
    assert owner.died.result() == 0

with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main())
"""

WITHOUT_JAX = """
import sys
import kvtransfer.plane.program, kvtransfer.client
assert not {"jax", "jaxlib", "flax"} & set(sys.modules)
"""


@pytest.fixture(autouse=True)
def folders(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where planes make their private folders (with a name short enough for sockets); empty again after every test."""
    with tempfile.TemporaryDirectory(prefix="kv-") as name:
        monkeypatch.setenv("XDG_RUNTIME_DIR", name)
        yield Path(name)
        assert os.listdir(name) == []


def entries(folder: Path) -> list[str]:
    """Names in a folder."""
    return sorted(os.listdir(folder))


def open_files() -> int:
    """Descriptors of this process."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def maps_a_host_pool() -> bool:
    """Whether this process does."""
    return "halfmoon-kv" in Path("/proc/self/maps").read_text(encoding="utf-8")


def run_python(code: str) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, check=True, timeout=60)


async def test_closing_leaves_no_process_file_descriptor_or_memory(folders: Path) -> None:
    descriptors: list[int] = []
    for _ in range(2):
        async with planes(plane_spec("a", 1), plane_spec("b", 2)) as (owner, reader):
            await pull(reader, await sealed(owner, 5))
            pids = [owner.pid, reader.pid]
            assert len(entries(folders)) == 2
            assert maps_a_host_pool()
        assert owner.died.result() == 0
        assert not any(psutil.pid_exists(pid) for pid in pids)
        assert entries(folders) == []
        assert not maps_a_host_pool()
        descriptors.append(open_files())
    assert descriptors[0] == descriptors[1]


async def test_closing_twice_is_closing_once() -> None:
    async with planes(plane_spec("a", 1)) as (plane,):
        await plane.close()


async def test_the_folder_of_the_sockets_is_private(folders: Path) -> None:
    async with planes(plane_spec("a", 1)):
        (name,) = entries(folders)
        assert entries(folders / name) == ["engine.sock", "shm.sock"]
        assert os.stat(folders / name).st_mode & 0o777 == 0o700


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 0)])
async def test_the_death_of_the_process_is_told_and_its_files_are_removed(
    folders: Path, number: signal.Signals, code: int
) -> None:
    async with planes(plane_spec("a", 1)) as (plane,):
        os.kill(plane.pid, number)
        async with asyncio.timeout(10):
            assert await asyncio.shield(plane.died) == code
        assert entries(folders) == []
        with pytest.raises(TransferError, match="UNAVAILABLE"):
            await anext(plane.pull("request", pb.KvHandle(), [], 1.0))


def test_the_process_dies_with_its_engine_and_removes_its_files(folders: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ENGINE], cwd=ROOT, stdout=subprocess.PIPE) as engine:
        assert engine.stdout is not None
        process = psutil.Process(int(engine.stdout.readline()))
        engine.kill()
    process.wait(timeout=10)
    assert entries(folders) == []
    assert not any("halfmoon" in name for name in os.listdir("/dev/shm"))


async def test_a_process_that_dies_while_it_starts_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(UnavailableError, match="died while it started"):
        await DataPlane.start(plane_spec("a", 1))


async def test_a_port_in_use_is_one_clear_error() -> None:
    """Case 8 of KV transfer: two instances took the same port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for field in ("port", "tcp_port"):
            with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
                await DataPlane.start(plane_spec("a", 1, **{field: port}))


@pytest.mark.parametrize(
    "changes",
    [{"transports": ("smoke",)}, {"transports": ()}, {"host_blocks": 0}, {"pull_reserve": 32}, {"host": "0.0.0.0"}],
)
def test_a_spec_that_cannot_work_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        plane_spec("a", 1, **changes)


def test_a_spec_survives_its_way_to_the_process() -> None:
    spec = plane_spec("a", 2**64 - 1, transports=("tcp",), lease_seconds=0.5)
    assert PlaneSpec.from_json(spec.to_json()) == spec


def test_the_process_never_imports_the_model() -> None:
    run_python(WITHOUT_JAX)


def test_engines_may_run_on_uvloop() -> None:
    run_python(UNDER_UVLOOP)


async def test_no_secret_is_ever_logged(capfd: pytest.CaptureFixture[str]) -> None:
    async with planes(plane_spec("a", 1), plane_spec("b", 2)) as (owner, reader):
        prompt = await sealed(owner, 2)
        await pull(reader, prompt)
        with pytest.raises(TransferError) as refusal:
            await pull(reader, prompt)
        failing = await offer(owner, 1)
        with pytest.raises(TransferError):
            await pull(reader, failing, timeout=0.2)
        await owner.withdraw(failing.handle.handle_id, "done")
        await at_rest(owner, reader)
    said = capfd.readouterr().err + str(refusal.value)
    assert "pull ended" in said
    for secret in (prompt.handle.handle_id, failing.handle.handle_id):
        assert secret.hex() not in said
        assert repr(secret)[2:-1] not in said
