"""Real data planes with small blocks, and what must be true of them when nothing runs."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from halfmoon.config import PageGeometry
from halfmoon.request import OutputToken
from halfmoon.v1 import kvtransfer_pb2 as pb
from kvtransfer import DataPlane, PlaneSpec, PullComplete, PulledBlock, block_checksum

GEOMETRY = PageGeometry(layers=2, kv_heads=3, page_size=16, head_dim=8, dtype="float32")
FIRST = OutputToken(choice=0, position=0, token_id=42)


def plane_spec(worker_id: str, incarnation: int, **changes: object) -> PlaneSpec:
    """A small plane; any field may be given."""
    fields: dict[str, object] = {"geometry": GEOMETRY, "host_blocks": 32, "fingerprint": "model", **changes}
    return PlaneSpec(worker_id=worker_id, incarnation=incarnation, **fields)  # type: ignore[arg-type]


@asynccontextmanager
async def planes(*specs: PlaneSpec) -> AsyncIterator[list[DataPlane]]:
    """Started together; all that started are closed in the end."""
    async with AsyncExitStack() as stack:

        async def start(spec: PlaneSpec) -> DataPlane:
            plane = await DataPlane.start(spec)
            stack.push_async_callback(plane.close)
            return plane

        starting = [asyncio.create_task(start(spec)) for spec in specs]
        await asyncio.wait(starting)
        yield [task.result() for task in starting]


def page_blocks(count: int) -> list[pb.KvBlock]:
    return [pb.KvBlock(content_hash=bytes([index]), tokens=16) for index in range(count)]


@dataclass
class Prompt:
    """An offered prompt as an engine fills it; `contents` are the bytes of its blocks."""

    plane: DataPlane
    handle: pb.KvHandle
    contents: list[NDArray[np.uint8]] = field(default_factory=list)

    async def publish(self, count: int) -> None:
        """Computes the next blocks."""
        first, sums = len(self.contents), []
        rng = np.random.default_rng(int.from_bytes(self.handle.handle_id[:8]) + first)
        for block in self.handle.blocks[first : first + count]:
            view = self.plane.block(block.offset)
            view[:] = rng.integers(0, 256, view.size, dtype=np.uint8)
            self.contents.append(view.copy())
            sums.append(block_checksum(view))
        await self.plane.publish(self.handle.handle_id, first, sums)

    async def seal(self, *tokens: OutputToken) -> None:
        await self.plane.seal(self.handle.handle_id, tokens)


async def offer(plane: DataPlane, count: int, *, timeout: float = 30.0) -> Prompt:  # noqa: ASYNC109
    """An offer with nothing published yet."""
    return Prompt(plane, await plane.offer("request", page_blocks(count), timeout))


async def sealed(plane: DataPlane, count: int) -> Prompt:
    """A complete prompt."""
    prompt = await offer(plane, count)
    await prompt.publish(count)
    await prompt.seal(FIRST)
    return prompt


async def pull(
    plane: DataPlane,
    prompt: Prompt,
    indices: Sequence[int] | None = None,
    *,
    handle: pb.KvHandle | None = None,
    timeout: float = 20.0,  # noqa: ASYNC109
) -> tuple[list[int], PullComplete]:
    """Pulls as an engine does: looks at each block, then frees it. Fails the test for a wrong byte."""
    wanted = list(range(len(prompt.handle.blocks))) if indices is None else list(indices)
    order: list[int] = []
    async with aclosing(plane.pull("request", handle or prompt.handle, wanted, timeout)) as events:
        async for event in events:
            if isinstance(event, PullComplete):
                assert sorted(order) == wanted
                return order, event
            order.append(event.block_index)
            await take(plane, prompt, event)
    raise AssertionError("the pull ended without completion or error")


async def take(plane: DataPlane, prompt: Prompt, block: PulledBlock) -> None:
    """Compares a block with what was computed, and frees it."""
    try:
        assert np.array_equal(plane.block(block.offset), prompt.contents[block.block_index])
    finally:
        await plane.free_blocks([block.offset])


async def at_rest(*those: DataPlane, seconds: float = 5.0) -> None:
    """Returns when every gauge is zero; fails the test with the gauges when they are not in time."""
    async with asyncio.timeout(seconds + 5.0):
        for plane in those:
            left = await _gauges(plane)
            rounds = int(seconds / 0.02)
            while any(left.values()) and rounds:
                await asyncio.sleep(0.02)
                left, rounds = await _gauges(plane), rounds - 1
            assert not any(left.values()), left


async def _gauges(plane: DataPlane) -> dict[str, int]:
    stats = await plane.stats()
    return {
        "host_blocks_used": stats.host_blocks_used,
        "handles_open": stats.handles_open,
        "leases_active": stats.leases_active,
        "transfers_active": stats.transfers_active,
        "store_leases": stats.store_leases,
    }
