"""The prefix store of a whole server: a working set of ten times the device's pages is computed once."""

import asyncio
import secrets
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from halfmoon.rpc import open_channel
from halfmoon.v1 import kvtransfer_pb2, prefill_pb2, prefill_pb2_grpc, router_pb2
from tests.e2e.fleet import Fleet, serving
from tests.e2e.peers import registered
from tests.e2e.small import BLOCK_BYTES, CONTROLS, PAGE_SIZE, VOCABULARY, write_small_model
from tests.e2e.tiers import sampling

PAGES = 20
PROMPTS = [
    [CONTROLS + (number * 7919 + place * place * 31) % (VOCABULARY - CONTROLS) for place in range(13 * PAGE_SIZE + 5)]
    for number in range(16)
]
TOKENS = sum(map(len, PROMPTS))
FLAGS = (
    *("--kernels", "xla", "--prefill", "2", "--split-threshold", "0", "--max-model-len", str(16 * PAGE_SIZE)),
    *("--kv-memory", str(PAGES * BLOCK_BYTES), "--host-kv-memory", str(300 * BLOCK_BYTES)),
    *("--kv-store-disk", "64MiB", "--kv-store-path"),
)
COMPUTED = "halfmoon_worker_prompt_tokens_computed_total"
RESTORED = "halfmoon_worker_prompt_tokens_restored_total"


async def answers(fleet: Fleet) -> list[list[int]]:
    """Greedy token ids for every prompt, one after the other."""
    body = {"max_tokens": 6, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    outputs: list[list[int]] = []
    async with httpx.AsyncClient(base_url=fleet.url, timeout=60) as client:
        for prompt in PROMPTS:
            response = await client.post("/v1/completions", json={**body, "prompt": prompt})
            assert response.status_code == 200, response.text
            outputs.append(response.json()["choices"][0]["token_ids"])
    return outputs


def computed(fleet: Fleet) -> float:
    """Prompt tokens computed by all workers."""
    return fleet.total("prefill", COMPUTED) + fleet.total("decode", COMPUTED)


async def first_tokens(worker: router_pb2.WorkerInfo, source: kvtransfer_pb2.KvSource) -> list[list[int]]:
    """What a prefill worker draws first for every prompt, when it is told where pages are."""
    tokens: list[list[int]] = []
    async with open_channel(worker.address) as channel:
        stub: prefill_pb2_grpc.PrefillAsyncStub = prefill_pb2_grpc.PrefillStub(channel)
        for prompt in PROMPTS:
            request = prefill_pb2.PrefillRequest(
                request_id=secrets.token_hex(8),
                model_fingerprint=worker.model_fingerprint,
                prompt_token_ids=prompt,
                sampling=sampling(1),
                source=source,
            )
            responses = [response async for response in stub.Prefill(request, timeout=60)]
            tokens.append([each.token_id for each in responses[-1].result.first_tokens])
    return tokens


def pages_of(prompts: Sequence[Sequence[int]]) -> int:
    """Full pages of prompts."""
    return sum(len(each) // PAGE_SIZE for each in prompts)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_working_set_is_computed_once_by_a_fleet_and_not_again_after_a_restart(tmp_path: Path) -> None:
    assert pages_of(PROMPTS) >= 10 * PAGES
    flags = (str(write_small_model(tmp_path / "small")), *FLAGS, str(tmp_path / "store"))
    (tmp_path / "first").mkdir()
    with serving(tmp_path / "first", *flags) as fleet:
        expected = await answers(fleet)
        await kept(fleet)
        first = computed(fleet)
        assert first == TOKENS
        assert fleet.total("prefill", RESTORED) == 0
        assert await answers(fleet) == expected
        assert computed(fleet) - first < 0.05 * TOKENS
    (tmp_path / "second").mkdir()
    with serving(tmp_path / "second", *flags) as fleet:
        await asyncio.sleep(2)  # workers report what they find on disk
        assert await answers(fleet) == expected
        assert computed(fleet) < 0.05 * TOKENS
        await pages_go_over_the_wire(fleet, expected)


async def kept(fleet: Fleet) -> None:
    """Returns when the stores have everything."""
    async with asyncio.timeout(30):
        while fleet.total("prefill", "halfmoon_worker_pages_to_keep"):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.2)
    await asyncio.sleep(1)


async def pages_go_over_the_wire(fleet: Fleet, expected: list[list[int]]) -> None:
    """The other prefill worker has computed nothing and computes next to nothing now."""
    workers = await registered(fleet)
    owner, other = sorted(("prefill-0", "prefill-1"), key=lambda name: -fleet.program(name).metrics()[RESTORED])
    before = fleet.program(other).metrics()
    assert before[RESTORED] == 0
    source = kvtransfer_pb2.KvSource(endpoint=workers[owner].kv_endpoint, pages=13)
    assert await first_tokens(workers[other], source) == [each[:1] for each in expected]
    await asyncio.sleep(1)
    after = fleet.program(other).metrics()
    assert after[COMPUTED] - before[COMPUTED] < 0.05 * TOKENS
    assert after[RESTORED] > 0.9 * TOKENS
