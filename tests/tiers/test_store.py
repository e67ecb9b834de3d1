"""What was computed once is not computed again: pages outlast the device and the process, and are had from others."""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from halfmoon.cache.hashing import page_hashes
from halfmoon.runner.runner import Runner
from halfmoon.v1 import kvtransfer_pb2
from tests.engine.small import PAGE_SIZE, SALT, generate, greedy, make_core, prompt
from tests.tiers.workers import TestWorker, decode_request, decoded, prefill_request, prefilled, sampling, worker

PAGES = 12
PROMPTS = [prompt(7 * PAGE_SIZE + 1 + each % 4, 100 + each) for each in range(17)]
STORE_BLOCKS = 160

Tokens = list[list[int]]


def storing(runner: Runner, disk_folder: Path | None = None) -> AbstractAsyncContextManager[TestWorker]:
    """A worker with few pages and a store with room for all prompts."""
    blocks = STORE_BLOCKS
    return worker(runner, pages=PAGES, host_blocks=blocks, store_blocks=blocks, disk_folder=disk_folder)


async def answers(
    worker: TestWorker, prompts: Sequence[tuple[int, ...]], source: kvtransfer_pb2.KvSource | None = None
) -> Tokens:
    """Greedy answers of an unsplit worker, one prompt after the other."""
    requests = [decode_request(each, sampling(6, temperature=0), source=source) for each in prompts]
    return [(await decoded(worker, each))[0][0] for each in requests]


async def settled(worker: TestWorker) -> None:
    """Returns when the store has everything."""
    assert worker.store is not None
    assert await worker.store.drained(10)
    await asyncio.sleep(0.6)  # what the store holds is asked for now and then


def computed(worker: TestWorker) -> int:
    """Prompt tokens computed so far."""
    return worker.engine.board.status.counters.prompt_tokens_computed


@pytest.fixture(scope="module")
def expected(runners: tuple[Runner, Runner]) -> Tokens:
    """What an engine without a store answers."""
    core = make_core(runners[0])
    return [generate(core, each, greedy(6)).ids() for each in PROMPTS]


async def test_a_working_set_of_many_times_the_pages_is_computed_once(
    runners: tuple[Runner, Runner], expected: Tokens
) -> None:
    tokens = sum(map(len, PROMPTS))
    assert tokens > 10 * PAGES * PAGE_SIZE - PAGE_SIZE
    async with storing(runners[0]) as only:
        assert await answers(only, PROMPTS) == expected
        await settled(only)
        assert computed(only) == tokens
        assert await answers(only, PROMPTS) == expected
        assert computed(only) - tokens < 0.05 * tokens
        assert only.engine.board.status.counters.prompt_tokens_restored > 0.9 * tokens
        await only.assert_at_rest()


async def test_a_worker_that_starts_again_has_its_pages_from_disk(
    runners: tuple[Runner, Runner], expected: Tokens, tmp_path: Path
) -> None:
    tokens = sum(map(len, PROMPTS))
    async with storing(runners[0], tmp_path) as before:
        assert await answers(before, PROMPTS) == expected
        await settled(before)
    async with storing(runners[0], tmp_path) as after:
        await settled(after)
        assert await answers(after, PROMPTS) == expected
        assert computed(after) < 0.05 * tokens
        await after.assert_at_rest()


async def test_another_worker_gets_pages_over_the_wire(runners: tuple[Runner, Runner], expected: Tokens) -> None:
    tokens = sum(map(len, PROMPTS))
    async with (
        storing(runners[0]) as owner,
        storing(runners[1]) as other,
    ):
        await answers(owner, PROMPTS)
        await settled(owner)
        source = kvtransfer_pb2.KvSource(endpoint=owner.plane.endpoint, pages=7)
        assert await answers(other, PROMPTS, source=source) == expected
        assert computed(other) < 0.05 * tokens
        assert (await other.plane.stats()).bytes_read
        await settled(other)
        await owner.assert_at_rest()
        await other.assert_at_rest()


async def test_a_source_that_is_not_there_costs_no_answer(runners: tuple[Runner, Runner], expected: Tokens) -> None:
    source = kvtransfer_pb2.KvSource(endpoint="127.0.0.1:9", pages=7)
    async with worker(runners[0], pages=PAGES, store_blocks=16) as lonely:
        assert await answers(lonely, PROMPTS[:1], source=source) == expected[:1]
        await lonely.assert_at_rest()


async def test_a_source_that_hangs_costs_a_bounded_time_once(
    runners: tuple[Runner, Runner], expected: Tokens, caplog: pytest.LogCaptureFixture
) -> None:
    async with storing(runners[0]) as owner, storing(runners[1]) as other:
        await answers(owner, PROMPTS[:3])
        await settled(owner)
        source = kvtransfer_pb2.KvSource(endpoint=owner.plane.endpoint, pages=7)
        assert await answers(other, PROMPTS[:1], source) == expected[:1]
        os.kill(owner.plane.pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(10):
                assert await answers(other, PROMPTS[1:3], source) == expected[1:3]
        finally:
            os.kill(owner.plane.pid, signal.SIGCONT)
        assert computed(other) == len(PROMPTS[0]) - 7 * PAGE_SIZE + len(PROMPTS[1]) + len(PROMPTS[2])
        assert [each.message for each in caplog.records].count("pages were not found in time") == 1
        await other.assert_at_rest()


async def test_pages_whose_bytes_are_wrong_are_computed(runners: tuple[Runner, Runner], expected: Tokens) -> None:
    async with storing(runners[0]) as owner, storing(runners[1]) as other:
        await answers(owner, PROMPTS[:1])
        await settled(owner)
        lease = await owner.plane.store.acquire(page_hashes(SALT, PROMPTS[0], PAGE_SIZE), 5)
        owner.plane.block(lease.offsets[3])[100] ^= 1
        assert await owner.plane.store.release(lease)
        source = kvtransfer_pb2.KvSource(endpoint=owner.plane.endpoint, pages=7)
        assert await answers(other, PROMPTS[:1], source) == expected[:1]
        assert computed(other) == len(PROMPTS[0])
        await other.assert_at_rest()


async def test_a_prompt_restored_by_prefill_says_so_and_publishes_all_its_pages(
    runners: tuple[Runner, Runner], expected: Tokens
) -> None:
    async with (
        worker(runners[0], role="prefill", pages=PAGES, host_blocks=STORE_BLOCKS, store_blocks=100) as prefill,
        worker(runners[1], role="decode") as decode,
    ):
        for ids in PROMPTS[:4]:
            await prefilled(prefill, prefill_request(ids, sampling(1), publish=False))
        await settled(prefill)
        params = sampling(6, temperature=0)
        for ids, wanted in zip(PROMPTS[:2], expected, strict=False):
            made = await prefilled(prefill, prefill_request(ids, params))
            assert made.cached == 7 * PAGE_SIZE
            tokens, _ = await decoded(decode, decode_request(ids, params, made.handle))
            assert [made.result.first_tokens[0].token_id, *tokens[0]] == wanted
        await prefill.assert_at_rest()


async def test_a_call_cancelled_at_any_moment_leaves_nothing(runners: tuple[Runner, Runner]) -> None:
    async with storing(runners[0]) as only:
        await answers(only, PROMPTS[:4])
        await settled(only)
        for number in range(12):
            request = decode_request(PROMPTS[number % 4], sampling(4, temperature=0))
            call = only.decode.Generate(request, timeout=30)
            await asyncio.sleep(0.002 * number)
            call.cancel()
        await only.assert_at_rest()
        assert len((await answers(only, PROMPTS[:1]))[0]) == 6
