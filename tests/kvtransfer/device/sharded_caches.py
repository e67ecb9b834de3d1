"""Moves pages between caches on different numbers of simulated devices, through two data planes; runs as a program.

`python -m tests.kvtransfer.device.sharded_caches` prints one line of JSON for each pair of shards.
"""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any

import jax
import numpy as np

from halfmoon.config import PageGeometry
from halfmoon.kernels.kv_pages import Caches, gather_pages, scatter_pages
from halfmoon.kernels.kv_pages.sharding import blocks_sharding, cache_sharding, tensor_mesh
from halfmoon.runner.steps import empty_caches
from kvtransfer import DataPlane, PulledBlock, block_checksum
from tests.kvtransfer.planes import page_blocks, plane_spec, planes

GEOMETRY = PageGeometry(layers=2, kv_heads=8, page_size=16, head_dim=8, dtype="float32")
PAGES = 6
"""The scratch page included."""

SOURCES = np.array([4, 1, 3], np.int32)
TARGETS = np.array([2, 5, 1], np.int32)
OTHERS = (0, 3, 4)
PAIRS = ((4, 2), (4, 8), (4, 1), (1, 8))

Blocks = np.ndarray[Any, np.dtype[Any]]


class Sharded:
    """Caches over some devices, with the compiled moves over them."""

    def __init__(self, shards: int) -> None:
        mesh = tensor_mesh(jax.devices()[:shards])
        self.blocks = blocks_sharding(mesh)
        self.layout = cache_sharding(mesh)
        self.caches: Caches = jax.device_put(empty_caches(PAGES, GEOMETRY), self.layout)
        self.gather = jax.jit(gather_pages, out_shardings=self.blocks)
        self.scatter = jax.jit(scatter_pages, out_shardings=self.layout, donate_argnums=0)

    def fill(self) -> None:
        """With random values."""
        random = np.random.default_rng(0)
        values = jax.tree.map(lambda cache: random.standard_normal(cache.shape).astype(cache.dtype), self.caches)
        self.caches = jax.device_put(values, self.layout)

    def page(self, number: int) -> list[Blocks]:
        """K and V of all layers."""
        return [np.asarray(cache)[number] for pair in self.caches for cache in pair]

    @property
    def heads_by_device(self) -> list[int]:
        """KV heads that each device holds of the first cache."""
        return [shard.data.shape[1] for shard in self.caches[0][0].addressable_shards]


def exchanges(function: Callable[..., Any], *arguments: Any) -> bool:
    """Whether a compiled move exchanges anything between devices."""
    text = jax.jit(function).lower(*arguments).compile().as_text() or ""
    return re.search(r"all-gather|all-reduce|all-to-all|collective-permute", text) is not None


async def move(source: DataPlane, target: DataPlane, blocks: Blocks) -> Blocks:
    """Through the host pools of two data planes."""
    handle = await source.offer("request", page_blocks(len(blocks)), 30.0)
    for place, block in zip(handle.blocks, blocks, strict=True):
        source.block(place.offset)[:] = block.reshape(-1).view(np.uint8)
    sums = [block_checksum(source.block(place.offset)) for place in handle.blocks]
    await source.publish(handle.handle_id, 0, sums)
    await source.seal(handle.handle_id, [])
    arrived = np.zeros_like(blocks)
    async with aclosing(target.pull("request", handle, range(len(blocks)), 20.0)) as events:
        async for event in events:
            if isinstance(event, PulledBlock):
                view = target.block(event.offset).view(blocks.dtype)
                arrived[event.block_index] = view.reshape(GEOMETRY.shape)
                await target.free_blocks([event.offset])
    return arrived


async def moved(planes: Sequence[DataPlane], owner: Sharded, reader: Sharded) -> dict[str, object]:
    """What is true of the reader's caches when the owner's pages have been written into them."""
    owner.fill()
    gathered = np.asarray(owner.gather(owner.caches, SOURCES))
    arrived = jax.device_put(await move(planes[0], planes[1], gathered), reader.blocks)
    exchanged = exchanges(owner.gather, owner.caches, SOURCES)
    exchanged = exchanged or exchanges(reader.scatter, reader.caches, TARGETS, arrived)
    reader.caches = reader.scatter(reader.caches, TARGETS, arrived)
    pairs = zip(SOURCES, TARGETS, strict=True)
    return {
        "equal": all(all(map(np.array_equal, owner.page(at), reader.page(to))) for at, to in pairs),
        "others_empty": not any(part.any() for page in OTHERS for part in reader.page(page)),
        "heads": [owner.heads_by_device, reader.heads_by_device],
        "exchanged": exchanged,
    }


async def main() -> None:
    """All pairs."""
    specs = [plane_spec(name, at, geometry=GEOMETRY) for at, name in enumerate(("prefill", "decode"), start=1)]
    async with planes(*specs) as started:
        for owner, reader in PAIRS:
            print(json.dumps(await moved(started, Sharded(owner), Sharded(reader))), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
