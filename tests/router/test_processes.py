"""Workers in processes of their own that are killed or stopped, and a router that restarts."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from halfmoon.errors import WorkerFailedError
from router import RouterConfig, RouterProgram
from tests.router.cluster import Cluster, running
from tests.router.tiny_text import tiny_text

ROOT = Path(__file__).parents[2]


@contextmanager
def worker_process(worker_id: str, cluster: Cluster) -> Iterator["subprocess.Popen[bytes]"]:
    router = f"127.0.0.1:{cluster.program.port}"
    command = [sys.executable, "-m", "tests.router.worker_process", worker_id, router, "a long answer " * 20]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait(5)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_killed_or_frozen_worker_ends_its_requests_and_serves_again_once_back(how: signal.Signals) -> None:
    async with running() as cluster:
        with worker_process("b0", cluster) as process:
            await cluster.known(1)
            call = cluster.call(seconds=20)
            for _ in range(3):
                await call.read()
            process.send_signal(how)
            begin = time.monotonic()
            reply = await cluster.send(call)
            assert isinstance(reply.error, WorkerFailedError)
            assert "b0" in reply.error.message
            assert time.monotonic() - begin < 5
        await cluster.known(0)
        with worker_process("b0", cluster):
            await cluster.known(1)
            assert (await cluster.ask(max_tokens=3)).text() == "a l"


async def test_workers_register_again_at_a_router_that_restarted() -> None:
    async with running("p0", "d0") as cluster:
        before = cluster.program
        await before.stop(0)
        config = RouterConfig(Path("tiny"), port=before.port, heartbeat=0.05, dead_after=1.0)
        cluster.program = RouterProgram(config, tiny_text())
        await cluster.program.start()
        await cluster.known(2)
        assert (await cluster.ask()).error is None
