"""Workers that die, hang or are told to end in the middle of a transfer: cases 1 and 9 of the split server's faults."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
import pytest

from halfmoon.v1 import router_pb2
from tests.e2e.clients import LANES, body, computed_anew, fresh_prompt, tokens_of, undisturbed
from tests.e2e.fleet import Fleet, ProgramUnderTest, serving
from tests.e2e.peers import Relay, back, joined_prefill, registered, until
from tests.e2e.small import BLOCK_BYTES, SMALL_FLAGS, write_small_model
from tests.kvtransfer.proxy import Fault

pytestmark = pytest.mark.timeout(300)

PROMPT = 400
SOON = 1.5
"""Seconds: one, and what the gauges of a data plane may be old."""
DRAIN = 5.0
FLAGS = (*SMALL_FLAGS, "--split-threshold", "0", "--transports", "tcp", "--decode", "2", "--drain-seconds", str(DRAIN))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One prefill worker and two decode workers."""
    folder = tmp_path_factory.mktemp("deaths")
    with serving(folder, str(write_small_model(folder / "small")), *FLAGS) as fleet:
        yield fleet


@dataclass(frozen=True, slots=True)
class InTransfer:
    """A request whose KV is on its way to `reader`: half a block has arrived, and nothing more comes.

    `workers` are those of the fleet, by id, as they were.
    """

    relay: Relay
    request: dict[str, object]
    answering: "asyncio.Task[list[int]]"
    reader: ProgramUnderTest
    workers: dict[str, router_pb2.WorkerInfo]


@asynccontextmanager
async def in_transfer(fleet: Fleet, client: httpx.AsyncClient) -> AsyncIterator[InTransfer]:
    """The answer must be right in the end, whatever the body does to the fleet."""
    prompt = fresh_prompt(PROMPT)
    request = body(prompt)
    workers = await registered(fleet)
    relay = Relay(workers["prefill-0"], prompt, Fault("hold", at=BLOCK_BYTES // 2))
    async with joined_prefill(fleet, relay), undisturbed(fleet):
        answering = asyncio.create_task(tokens_of(client, request))
        await relay.holding()
        yield InTransfer(relay, request, answering, await _reader(fleet), workers)
        answer = await answering
    assert answer == await computed_anew(client, request)


async def _reader(fleet: Fleet) -> ProgramUnderTest:
    found: list[ProgramUnderTest] = []

    def look() -> bool:
        workers = fleet.workers("decode")
        found[:] = [each for each in workers if each.metrics()["halfmoon_kv_host_blocks_used"] > LANES]
        return len(found) == 1

    await until(look)
    return found[0]


async def released(fleet: Fleet) -> None:
    """Prefill soon holds no more than what the requests that go on meanwhile may have: a block each."""
    prefill = fleet.program("prefill-0")
    await until(lambda: prefill.metrics()["halfmoon_kv_host_blocks_used"] <= LANES, SOON)


@pytest.fixture
async def client(fleet: Fleet) -> AsyncIterator[httpx.AsyncClient]:
    """Speaks HTTP to it; afterwards nothing is left of what it asked."""
    async with httpx.AsyncClient(base_url=fleet.url) as client:
        yield client
    fleet.assert_at_rest(SOON)


@pytest.mark.parametrize("part", ["worker", pytest.param("data plane", marks=pytest.mark.slow)])
async def test_a_decode_worker_killed_in_a_transfer_leaves_prefill_nothing_and_the_request_runs_elsewhere(
    fleet: Fleet, client: httpx.AsyncClient, part: str
) -> None:
    """Case 1, by SIGKILL."""
    async with in_transfer(fleet, client) as moving:
        os.kill(moving.reader.pid if part == "worker" else moving.reader.plane_pid, signal.SIGKILL)
        await moving.answering
        await released(fleet)
    await back(fleet, moving.workers[moving.reader.name])


async def test_a_decode_worker_that_hangs_in_a_transfer_is_left_after_four_seconds(
    fleet: Fleet, client: httpx.AsyncClient
) -> None:
    """Case 1, by SIGSTOP of all its processes; afterwards it goes on as if nothing had been."""
    async with in_transfer(fleet, client) as moving:
        stopped = (moving.reader.pid, moving.reader.plane_pid)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.wait_for(asyncio.shield(moving.answering), 10)
            await released(fleet)
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
    fleet.assert_at_rest(SOON)
    await until(lambda: fleet.program(moving.reader.name).pid == moving.reader.pid)


async def test_a_prefill_worker_told_to_end_hands_over_what_it_holds(fleet: Fleet, client: httpx.AsyncClient) -> None:
    """Case 9: SIGTERM in the middle of a transfer, which then ends well; new requests are served meanwhile."""
    prefill = fleet.program("prefill-0")
    async with in_transfer(fleet, client) as moving:
        os.kill(prefill.pid, signal.SIGTERM)
        await asyncio.sleep(1)
        assert len(await tokens_of(client, body(fresh_prompt(PROMPT)))) == 16
        assert prefill.pid == fleet.program("prefill-0").pid
        moving.relay.resume()
        await moving.answering
    assert moving.relay.prefills == 1
    await back(fleet, moving.workers["prefill-0"])


async def test_a_prefill_worker_that_must_end_gives_its_readers_an_error(
    fleet: Fleet, client: httpx.AsyncClient
) -> None:
    """Case 9: a reader that is not done when the drain is over reads no freed memory; the prompt is computed again."""
    prefill = fleet.program("prefill-0")
    async with in_transfer(fleet, client) as moving:
        os.kill(prefill.pid, signal.SIGTERM)
        await asyncio.wait_for(asyncio.shield(moving.answering), DRAIN + 10)
    await back(fleet, moving.workers["prefill-0"])
