"""A process with devices of its own that owns or reads pages, told what to do by lines of JSON; runs as a program.

`python -m tests.kvtransfer.device.worker_process SPEC` prints where it can be reached, then one answer a line.
"""

import asyncio
import json
import sys
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from halfmoon.config import PageGeometry
from halfmoon.errors import HalfmoonError
from halfmoon.kernels.kv_pages.sharding import blocks_sharding, tensor_mesh
from halfmoon.request import OutputToken
from halfmoon.rpc import GrpcServer
from halfmoon.v1 import devicetransfer_pb2_grpc, kvtransfer_pb2
from kvtransfer import block_checksum
from kvtransfer.device import DeviceLayout, DeviceLink, DeviceOwner, DeviceReader, DeviceSpec, FetchedSeal, Placement

Answer = Mapping[str, object]


def content(geometry: PageGeometry, seed: int, block: int) -> np.ndarray[Any, np.dtype[Any]]:
    """The values of a block, which both sides can make."""
    random = np.random.default_rng([seed, block])
    return random.standard_normal(geometry.shape).astype(jnp.dtype(geometry.dtype))


class CorruptingLink(DeviceLink):
    """Lends other bits than it was given."""

    def lend(self, arrays: Any, seconds: float) -> int:
        return super().lend([array.at[0, 0, 0, 0, 0].add(1) for array in arrays], seconds)


class Worker:
    """Owner and reader in one."""

    def __init__(self, spec: DeviceSpec, *, corrupting: bool) -> None:
        self._spec = spec
        self._link = CorruptingLink("127.0.0.1") if corrupting else DeviceLink("127.0.0.1")
        placement = Placement(spec.layout, jax.devices())
        placement.warm_up()
        self._sharding = blocks_sharding(tensor_mesh(jax.devices()[: spec.layout.shards]))
        self.owner = DeviceOwner(spec, self._link, placement)
        self._reader = DeviceReader(spec, self._link, placement)

    async def answer(self, line: str) -> Answer:
        """Does what a line says."""
        command = json.loads(line)
        try:
            return await getattr(self, command.pop("do"))(**command)  # type: ignore[no-any-return]
        except HalfmoonError as error:
            return {"error": type(error).__name__, "message": error.message}

    async def open(self, handle: str, blocks: int, seconds: float = 30.0) -> Answer:
        self.owner.open(bytes.fromhex(handle), blocks, seconds)
        return {}

    async def add(self, handle: str, first: int, counts: list[int]) -> Answer:
        arrays = []
        at = first
        for count in counts:
            pages = next(size for size in self._spec.layout.page_counts if size >= count)
            blocks = np.zeros((pages, *self._spec.layout.geometry.shape), jnp.dtype(self._spec.layout.geometry.dtype))
            for place in range(count):
                blocks[place] = content(self._spec.layout.geometry, int(handle[:8], 16), at + place)
            arrays.append((jax.device_put(blocks, self._sharding), count))
            at += count
        self.owner.add(bytes.fromhex(handle), first, arrays)
        return {}

    async def seal(self, handle: str) -> Answer:
        self.owner.seal(bytes.fromhex(handle), [OutputToken(choice=0, position=0, token_id=42)])
        return {}

    async def taken(self, handle: str) -> Answer:
        return {"taken": await self.owner.taken(bytes.fromhex(handle))}

    async def drop(self, handle: str) -> Answer:
        self.owner.drop(bytes.fromhex(handle), "dropped")
        return {}

    async def stats(self) -> Answer:
        return {
            "bytes": self.owner.nbytes,
            "handles": self.owner.handle_count,
            "served": self.owner.fetch_count,
            "lent": self._link.lent_count,
            "fetches": self._reader.fetch_count,
            "abandoned": self._reader.abandoned_count,
        }

    async def fetch(self, handle: str, wanted: list[int], timeout: float) -> Answer:  # noqa: ASYNC109
        """The checksum of each block that came, and of what devices hold its heads."""
        message = kvtransfer_pb2.KvHandle.FromString(bytes.fromhex(handle))
        sums: dict[int, int] = {}
        devices: set[int] = set()
        outcome: dict[str, object] = {}
        try:
            async with aclosing(self._reader.fetch(message, wanted, timeout)) as fetched:
                async for pages in fetched:
                    if isinstance(pages, FetchedSeal):
                        outcome = {"tokens": [token.token_id for token in pages.first_tokens]}
                        continue
                    devices |= {device.id for device in pages.blocks.devices()}
                    sums |= {pages.first + at: _checksum(pages.blocks, at) for at in range(pages.count)}
        except HalfmoonError as error:
            outcome = {"error": type(error).__name__, "message": error.message}
        return {**outcome, "sums": sums, "devices": sorted(devices)}


def _checksum(blocks: Array, at: int) -> int:
    return block_checksum(np.ascontiguousarray(np.asarray(blocks)[at]).reshape(-1).view(np.uint8))


async def main(text: str) -> None:
    """Serves until its input ends."""
    fields = json.loads(text)
    corrupting = fields.pop("corrupting", False)
    layout = fields.pop("layout")
    layout = DeviceLayout(PageGeometry(**layout["geometry"]), layout["shards"], tuple(layout["page_counts"]))
    worker = Worker(replace(DeviceSpec("", 0, "", layout), **fields), corrupting=corrupting)
    server = GrpcServer()
    name = "halfmoon.v1.DeviceTransfer"
    server.add(devicetransfer_pb2_grpc.add_DeviceTransferServicer_to_server, worker.owner, name)
    await server.start()
    print(json.dumps({"endpoint": f"127.0.0.1:{server.port}"}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await worker.answer(line)), flush=True)
    await server.stop()
    await worker.owner.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
