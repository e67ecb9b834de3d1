"""What a server takes, and that it does not grow."""

import asyncio
from pathlib import Path

import httpx
import psutil
import pytest

from tests.e2e.fleet import Fleet, serving

GIB, MIB = 1 << 30, 1 << 20
POOLS = ("--kv-memory", "400MiB", "--host-kv-memory", "400MiB")
"""Room for more than 8,192 tokens of the default model in float32."""


def proportional(fleet: Fleet) -> int:
    """Proportional set size of all processes of a server, in bytes."""
    root = psutil.Process(fleet.process.pid)
    return sum(each.memory_full_info().pss for each in (root, *root.children(recursive=True)))


def resident(fleet: Fleet) -> dict[str, int]:
    """Resident bytes of each program and its data plane, by name and place."""
    sizes: dict[str, int] = {}
    for program in fleet.programs().values():
        process = psutil.Process(program.pid)
        sizes[program.name] = process.memory_info().rss
        for place, child in enumerate(process.children(recursive=True)):
            sizes[f"{program.name} child {place}"] = child.memory_info().rss
    return sizes


async def answer(fleet: Fleet, requests: range, *, tokens: int, output: int) -> None:
    """Sends so many requests with prompts of their own, 16 at once; every one must succeed."""
    gate = asyncio.Semaphore(16)

    async def one(client: httpx.AsyncClient, number: int) -> None:
        ids = [(number * 7919 + each * 31) % 49_000 + 100 for each in range(tokens)]
        body = {"prompt": ids, "max_tokens": output, "ignore_eos": True, "temperature": 0}
        async with gate:
            response = await client.post("/v1/completions", json=body, timeout=300)
        assert response.status_code == 200, response.text

    async with httpx.AsyncClient(base_url=fleet.url) as client:
        await asyncio.gather(*(one(client, number) for number in requests))


@pytest.mark.slow
@pytest.mark.timeout(1500)
async def test_a_server_fits_and_2000_requests_leave_it_as_large_as_200(tmp_path: Path, default_model: Path) -> None:
    with serving(tmp_path, str(default_model), *POOLS) as fleet:
        await answer(fleet, range(32), tokens=128, output=64)
        size = proportional(fleet)
        print(f"proportional set size of all processes: {size / GIB:.2f} GiB")
        assert size < 4 * GIB
        await answer(fleet, range(1000, 1200), tokens=16, output=8)
        before = resident(fleet)
        await answer(fleet, range(1200, 3000), tokens=16, output=8)
        after = resident(fleet)
        grown = {name: (after[name] - before[name]) / MIB for name in before}
        print(f"resident memory grown, MiB: { {name: round(mib, 1) for name, mib in grown.items()} }")
        assert max(grown.values()) < 20, grown
