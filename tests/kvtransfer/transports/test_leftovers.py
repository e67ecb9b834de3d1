"""Connections, descriptors, threads and mappings: kept while they are good, and gone in the end."""

import asyncio
import gc
import os
import threading
from pathlib import Path

import pytest

from kvtransfer.region import Region
from kvtransfer.transports.base import ReadStatus
from tests.kvtransfer.kinds import kind_named
from tests.kvtransfer.rig import Rig, block, eventually, read, rig

OK = ReadStatus.OK


def held() -> tuple[int, int, int]:
    """Descriptors, threads outside of asyncio's pool, and mappings of host pools of this process."""
    gc.collect()
    threads = [thread for thread in threading.enumerate() if not thread.name.startswith("asyncio")]
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").count("halfmoon-kv")
    return len(os.listdir("/proc/self/fd")), len(threads), maps


def no_late_engine() -> bool:
    """No engine has work any more that its reader has abandoned; it gives up by itself."""
    return not any(thread.name == "mooncake-read" for thread in threading.enumerate())


async def test_connections_are_kept_and_none_is_left(small: Rig) -> None:
    key, offsets = await small.offer(1)
    first, _ = small.reader()
    assert await read(first, key, [block(offsets[0])]) == [OK]
    first.close()
    await eventually(lambda: small.server.connection_count == 0)
    transport, _ = small.reader()
    await asyncio.to_thread(gc.collect)
    before = held()[0]
    for _ in range(10):
        assert await read(transport, key, [block(offsets[0])]) == [OK]
    assert small.server.connection_count == 1
    transport.close()
    await eventually(lambda: small.server.connection_count == 0)
    assert held()[0] == before


async def test_everything_is_gone_when_both_sides_are_closed(name: str, tmp_path: Path) -> None:
    await eventually(no_late_engine)
    seen: list[tuple[int, int, int]] = []
    for round_ in range(3):
        async with rig(name, tmp_path, incarnation=round_ + 1) as owner:
            key, offsets = await owner.offer(8)
            for _ in range(2):
                transport, _ = owner.reader()
                reads = (read(transport, key, [block(offset, 4096 * i)]) for i, offset in enumerate(offsets))
                assert await asyncio.gather(*reads) == [[OK]] * 8
        del owner, transport
        await eventually(no_late_engine)
        seen.append(held())
    if not kind_named(name).keeps_sockets:
        assert seen[1][0] == seen[2][0]
    assert seen[1][1] == seen[2][1]
    assert seen[2][2] == 0


@pytest.mark.parametrize("place", [1 << 20, (1 << 20) - 1, -1])
async def test_a_place_outside_of_the_registered_memory_is_a_bug_that_leaves_nothing_behind(
    small: Rig, place: int
) -> None:
    key, offsets = await small.offer(2)
    transport, _ = small.reader()
    with pytest.raises(ValueError, match="lie outside"):
        await read(transport, key, [block(offsets[0]), block(offsets[1], place)])
    await eventually(lambda: small.owner.read_count == 0)
    assert await read(transport, key, [block(offsets[0])]) == [OK]


async def test_reading_without_registered_memory_is_a_bug(small: Rig) -> None:
    key, offsets = await small.offer(1)
    transport = kind_named(small.name).connect(small.server.address)
    with pytest.raises(RuntimeError, match="no region is registered"):
        await read(transport, key, [block(offsets[0])])
    local = Region.create(4096)
    transport.register(local)
    assert await read(transport, key, [block(offsets[0])]) == [OK]
    transport.close()
    local.close()
    await eventually(lambda: small.owner.read_count == 0)
