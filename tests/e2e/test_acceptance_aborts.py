"""Clients that hang up, one and two hundred at once: cases 3 and 8 of the split server's faults."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from tests.e2e.clients import body, fresh_prompt, tokens_of, undisturbed
from tests.e2e.fleet import Fleet, serving
from tests.e2e.peers import until
from tests.e2e.small import SMALL_FLAGS, write_small_model

pytestmark = pytest.mark.timeout(300)

SOON = 1.5
"""Seconds: one, and what the gauges of a data plane may be old."""
STORM = 200
BATCH, OUTPUT = 32, 48
LONG = 6000


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One worker of each kind."""
    folder = tmp_path_factory.mktemp("aborts")
    flags = (*SMALL_FLAGS, "--split-threshold", "0")
    with serving(folder, str(write_small_model(folder / "small")), *flags) as fleet:
        yield fleet


@pytest.fixture
async def client(fleet: Fleet) -> AsyncIterator[httpx.AsyncClient]:
    """Speaks HTTP to it; afterwards nothing is left of what it asked."""
    limits = httpx.Limits(max_connections=2 * STORM)
    async with httpx.AsyncClient(base_url=fleet.url, limits=limits) as client:
        yield client
    fleet.assert_at_rest(SOON)


async def hang_up(requests: "list[asyncio.Task[list[int]]]") -> None:
    """All at once; none of them may have been answered."""
    for request in requests:
        request.cancel()
    ended = await asyncio.gather(*requests, return_exceptions=True)
    assert {type(each) for each in ended} == {asyncio.CancelledError}


async def test_two_hundred_aborts_at_once_reach_both_tiers_and_leave_full_throughput(
    fleet: Fleet, client: httpx.AsyncClient
) -> None:
    """Case 3."""
    before = await _best_seconds(client)
    storm = [asyncio.create_task(tokens_of(client, body(fresh_prompt(90), 4000))) for _ in range(STORM)]
    router = fleet.program("router")
    await until(lambda: router.metrics()["halfmoon_router_requests_held"] == STORM, 30)
    await until(lambda: fleet.total("decode", "halfmoon_worker_requests_running") > 0, 30)
    await hang_up(storm)
    fleet.assert_at_rest(SOON)
    after = await _best_seconds(client)
    print(f"{BATCH} requests of {OUTPUT} tokens: {before:.2f} s before the storm, {after:.2f} s after it")
    assert after < before / 0.7


async def _best_seconds(client: httpx.AsyncClient) -> float:
    """Of a batch that fills the decode worker: the best of three."""
    times = []
    for _ in range(3):
        begin = time.monotonic()
        await asyncio.gather(*(tokens_of(client, body(fresh_prompt(90), OUTPUT)) for _ in range(BATCH)))
        times.append(time.monotonic() - begin)
    return min(times)


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.1, 0.2, 0.4, 0.8])
async def test_a_client_that_hangs_up_while_prompts_are_computed_leaves_nothing(
    fleet: Fleet, client: httpx.AsyncClient, seconds: float
) -> None:
    """Case 8, at several moments: eight long prompts are queued, in work, and on their way."""
    async with undisturbed(fleet):
        requests = [asyncio.create_task(tokens_of(client, body(fresh_prompt(LONG), 1000))) for _ in range(8)]
        await asyncio.sleep(seconds)
        await hang_up(requests)
    fleet.assert_at_rest(SOON)


async def test_decode_learns_that_the_client_is_gone_though_prefill_hangs(
    fleet: Fleet, client: httpx.AsyncClient
) -> None:
    """Case 8: prefill is stopped in the middle of prompts; it gives everything back when it goes on."""
    prefill = fleet.program("prefill-0")
    requests = [asyncio.create_task(tokens_of(client, body(fresh_prompt(LONG), 1000))) for _ in range(8)]
    await until(lambda: fleet.total("decode", "halfmoon_worker_streams_open") > 0, 20)
    os.kill(prefill.pid, signal.SIGSTOP)
    try:
        await hang_up(requests)
        fleet.assert_at_rest(SOON, "decode-0", "router")
    finally:
        os.kill(prefill.pid, signal.SIGCONT)
    fleet.assert_at_rest(SOON)
    async with undisturbed(fleet):
        assert len(await tokens_of(client, body(fresh_prompt(LONG)))) == 16
