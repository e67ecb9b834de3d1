"""Workers with simulated devices, each a process of its own."""

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from halfmoon.config import PageGeometry
from halfmoon.v1 import kvtransfer_pb2
from kvtransfer import block_checksum
from tests.kvtransfer.device.worker_process import content

GEOMETRY = PageGeometry(layers=2, kv_heads=8, page_size=16, head_dim=8, dtype="float32")
COUNTS = (1, 4)
_ANSWER_SECONDS = 60.0


@dataclass
class Worker:
    """One process. Only one coroutine at a time may talk to it."""

    process: "subprocess.Popen[str]"
    incarnation: int

    @cached_property
    def endpoint(self) -> str:
        """Where it serves; waits until it does."""
        return str(json.loads(self._line())["endpoint"])

    async def do(self, what: str, **arguments: object) -> dict[str, Any]:
        """Asks for something, and returns the answer."""
        await self.tell(what, **arguments)
        return await self.answer()

    async def tell(self, what: str, **arguments: object) -> None:
        """Asks for something whose answer is fetched later."""
        assert await asyncio.to_thread(lambda: self.endpoint)
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": what, **arguments}) + "\n")
        self.process.stdin.flush()

    async def answer(self) -> dict[str, Any]:
        """The answer to the oldest question."""
        line = await asyncio.wait_for(asyncio.to_thread(self._line), _ANSWER_SECONDS)
        return json.loads(line)  # type: ignore[no-any-return]

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        os.kill(self.process.pid, number)

    async def offer(self, blocks: int, *, counts: Sequence[int] = (), seconds: float = 30.0) -> kvtransfer_pb2.KvHandle:
        """A handle; of its blocks as many are complete as `counts` says, in arrays of so many. Sealed when all are."""
        handle_id = secrets.token_bytes(16)
        await self.do("open", handle=handle_id.hex(), blocks=blocks, seconds=seconds)
        await self.do("add", handle=handle_id.hex(), first=0, counts=list(counts))
        if sum(counts) == blocks:
            await self.do("seal", handle=handle_id.hex())
        return kvtransfer_pb2.KvHandle(
            handle_id=handle_id,
            owner_incarnation=self.incarnation,
            device_endpoint=self.endpoint,
            blocks=[kvtransfer_pb2.KvBlock(tokens=16)] * blocks,
        )

    async def start_fetch(self, handle: kvtransfer_pb2.KvHandle, wanted: Sequence[int], seconds: float = 20.0) -> None:
        """Begins to read blocks; see `worker_process.Worker.fetch`."""
        text = handle.SerializeToString().hex()
        await self.tell("fetch", handle=text, wanted=list(wanted), timeout=seconds)

    async def fetch(
        self, handle: kvtransfer_pb2.KvHandle, wanted: Sequence[int], seconds: float = 20.0
    ) -> dict[str, Any]:
        """Reads blocks; see `worker_process.Worker.fetch`."""
        await self.start_fetch(handle, wanted, seconds)
        return await self.answer()

    async def until_waiting(self) -> None:
        """Returns when one reader has read all that is complete, and waits for more."""
        waiting = {"served": 1, "lent": 0}
        while waiting.items() - (await self.do("stats")).items():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
        assert not waiting.items() - (await self.do("stats")).items()

    async def assert_at_rest(self, seconds: float = 5.0) -> None:
        """Fails unless every gauge returns to zero within so many seconds."""
        deadline = time.monotonic() + seconds
        while any((busy := await self.do("stats")).values()) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert not any(busy.values()), busy

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the worker ended with {self.process.wait()}"
        return line


@contextmanager
def worker(
    *,
    shards: int = 1,
    geometry: PageGeometry = GEOMETRY,
    page_counts: tuple[int, ...] = COUNTS,
    **fields: object,
) -> Iterator[Worker]:
    """A worker with as many devices as shards; `fields` are of `DeviceSpec`. It may still be starting."""
    layout = {"geometry": asdict(geometry), "shards": shards, "page_counts": page_counts}
    incarnation = secrets.randbits(64) | 1
    spec = {"worker_id": f"w{shards}", "incarnation": incarnation, "fingerprint": "model", "layout": layout, **fields}
    command = [sys.executable, "-m", "tests.kvtransfer.device.worker_process", json.dumps(spec)]
    environment = {**os.environ, "XLA_FLAGS": f"--xla_force_host_platform_device_count={shards}"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        try:
            yield Worker(process, incarnation)
        finally:
            process.kill()


def checksums(handle: kvtransfer_pb2.KvHandle, geometry: PageGeometry, blocks: Sequence[int]) -> dict[str, int]:
    """What a fetch must say of blocks."""
    seed = int(handle.handle_id.hex()[:8], 16)
    return {str(each): _checksum(content(geometry, seed, each)) for each in blocks}


def _checksum(block: np.ndarray[Any, np.dtype[Any]]) -> int:
    return block_checksum(block.reshape(-1).view(np.uint8))
