"""Pages with contents that follow from their hashes, and what an engine does with them."""

import asyncio
import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kvtransfer import DataPlane, StorePlace, block_checksum
from tests.kvtransfer.planes import GEOMETRY


def page_hash(number: int) -> bytes:
    return hashlib.blake2b(number.to_bytes(8, "little"), digest_size=16).digest()


def hashes(*numbers: int) -> list[bytes]:
    return [page_hash(number) for number in numbers]


def content(content_hash: bytes) -> NDArray[np.uint8]:
    """uint8 [block bytes]."""
    rng = np.random.default_rng(int.from_bytes(content_hash))
    return rng.integers(0, 256, GEOMETRY.block_bytes, dtype=np.uint8)


def write(plane: DataPlane, places: Sequence[StorePlace]) -> list[int]:
    """Fills places; their checksums."""
    for place in places:
        plane.block(place.offset)[:] = content(place.content_hash)
    return [block_checksum(plane.block(place.offset)) for place in places]


async def put(plane: DataPlane, *numbers: int) -> int:
    """Stores pages as an engine does; how many were new and had room."""
    places = await plane.store.put_begin(hashes(*numbers))
    await plane.store.put_end(places, write(plane, places))
    return len(places)


async def get(plane: DataPlane, *numbers: int, timeout: float = 5.0) -> int:  # noqa: ASYNC109
    """Reads the leading run of the pages that is stored; its length. Fails the test for a wrong byte."""
    wanted = hashes(*numbers)
    lease = await plane.store.acquire(wanted, timeout)
    for content_hash, offset in zip(wanted, lease.offsets, strict=False):
        assert np.array_equal(plane.block(offset), content(content_hash))
    assert await plane.store.release(lease)
    return len(lease.offsets)


async def saved(plane: DataPlane, count: int) -> None:
    """Returns when the disk has so many pages; fails the test when it has not in ten seconds."""
    for _ in range(500):
        if (await plane.stats()).store_tiers["disk"].stored >= count:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(await plane.stats())
