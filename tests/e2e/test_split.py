"""The split server, whole: one prefill and one decode worker as processes of their own, KV over shared memory."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import openai
import psutil
import pytest

from tests.e2e import reference
from tests.e2e.fleet import Fleet, serving

CASES = reference.cases()
PAGE_SIZE = 64
BLOCK_BYTES = 30 * 3 * PAGE_SIZE * 2 * 64 * 4


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, default_model: Path) -> Iterator[Fleet]:
    """With the default model."""
    del default_model  # it is fetched
    with serving(tmp_path_factory.mktemp("split"), "--split-threshold", "0") as fleet:
        yield fleet


@pytest.fixture
async def client(fleet: Fleet) -> AsyncIterator[httpx.AsyncClient]:
    """Speaks HTTP to it."""
    async with httpx.AsyncClient(base_url=fleet.url) as client:
        yield client


@pytest.mark.timeout(300)
def test_the_programs_are_processes_of_their_own(fleet: Fleet) -> None:
    programs = fleet.programs()
    assert sorted(programs) == ["decode-0", "gateway", "prefill-0", "router"]
    assert len({program.pid for program in programs.values()}) == 4
    for worker in ("prefill-0", "decode-0"):
        planes = psutil.Process(programs[worker].pid).children()
        assert any("kvtransfer.plane" in " ".join(plane.cmdline()) for plane in planes)


@pytest.mark.parametrize("name", CASES)
async def test_every_reference_case_is_equal(client: httpx.AsyncClient, name: str) -> None:
    case = CASES[name]
    more = {"prompt_logprobs": 1} if "prompt_logprobs" in case else {}
    reference.assert_equal(case, await reference.complete(client, **reference.request(case, **more)))


@pytest.mark.parametrize("name", ["chat0", "chat1"])
async def test_chats_render_and_answer_like_the_reference(client: httpx.AsyncClient, name: str) -> None:
    case = CASES[name]
    body = {"messages": case["messages"], "temperature": 0, "max_tokens": 32, "return_token_ids": True}
    answer = (await client.post("/v1/chat/completions", json=body, timeout=60)).json()
    assert answer["prompt_token_ids"] == case["prompt_token_ids"]
    assert answer["choices"][0]["token_ids"] == case["output_token_ids"]
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["choices"][0]["message"]["content"] == case["output_text"].removesuffix("<|im_end|>")


@pytest.mark.parametrize("tokens", [64, 65, 200])
async def test_kv_moves_and_decode_computes_no_prompt(fleet: Fleet, client: httpx.AsyncClient, tokens: int) -> None:
    """The bytes moved are those of the prompt's pages; every prompt token is computed by prefill."""
    names = ("halfmoon_kv_bytes_read_total", "halfmoon_worker_prompt_tokens_computed_total")
    fleet.assert_at_rest()
    await asyncio.sleep(1)  # the data plane's counters are read twice a second
    before = [fleet.total("decode", name) for name in names] + [fleet.total("prefill", names[1])]
    ids = [1000 + tokens * 7 + each for each in range(tokens)]
    await reference.complete(client, prompt=ids, max_tokens=4, temperature=0, ignore_eos=True)
    await asyncio.sleep(1)
    after = [fleet.total("decode", name) for name in names] + [fleet.total("prefill", names[1])]
    moved, computed_by_decode, computed_by_prefill = (now - then for now, then in zip(after, before, strict=True))
    assert moved == -(-tokens // PAGE_SIZE) * BLOCK_BYTES
    assert computed_by_decode == 0
    assert computed_by_prefill == tokens


async def test_prompts_that_share_prefixes_give_equal_tokens_hit_or_miss(client: httpx.AsyncClient) -> None:
    shared = CASES["long"]["prompt_token_ids"][7:207]
    tails = [[200 + each, 300, 400] for each in range(3)]
    answers = {}
    for round_ in ("miss", "hit"):
        answers[round_] = [
            await reference.complete(
                client, prompt=shared + tail, max_tokens=16, temperature=0, ignore_eos=True, return_token_ids=True
            )
            for tail in tails
        ]
    first, again = answers["miss"], answers["hit"]
    assert [each["choices"][0]["token_ids"] for each in first] == [each["choices"][0]["token_ids"] for each in again]
    cached = [each["usage"]["prompt_tokens_details"]["cached_tokens"] for each in first + again]
    assert cached == [0, 192, 192, 192, 192, 192]


async def test_the_official_client_reads_a_stream(fleet: Fleet) -> None:
    async with openai.AsyncOpenAI(base_url=f"{fleet.url}/v1", api_key="none") as client:
        messages = CASES["chat0"]["messages"]
        stream = await client.chat.completions.create(
            model="SmolLM2-135M-Instruct", messages=messages, temperature=0, stream=True
        )
        parts = [chunk.choices[0] async for chunk in stream]
    assert "".join(part.delta.content or "" for part in parts) == "The capital of France is Paris."
    assert [part.finish_reason for part in parts][-1] == "stop"


async def test_a_client_that_hangs_up_frees_everything(fleet: Fleet, client: httpx.AsyncClient) -> None:
    body = {"prompt": list(range(100, 500)), "max_tokens": 500, "ignore_eos": True, "stream": True}
    async with client.stream("POST", "/v1/completions", json=body, timeout=60) as response:
        lines = response.aiter_lines()
        for _ in range(5):
            await anext(lines)
        assert fleet.busy() != {}
    fleet.assert_at_rest(2.0)


async def test_an_abort_storm_leaves_nothing(fleet: Fleet) -> None:
    """Row 3 of the disaggregation faults: 200 requests dropped at all moments of their life."""

    async def drop(client: httpx.AsyncClient, number: int) -> None:
        body = {"prompt": list(range(number, number + 90)), "max_tokens": 200, "ignore_eos": True}
        try:
            await client.post("/v1/completions", json=body, timeout=0.05 + number * 0.02)
        except httpx.TimeoutException:
            return

    limits = httpx.Limits(max_connections=200)
    async with httpx.AsyncClient(base_url=fleet.url, limits=limits) as client:
        await asyncio.gather(*(drop(client, number) for number in range(200)))
        fleet.assert_at_rest(5.0)
        case = CASES["france"]
        reference.assert_equal(case, await reference.complete(client, **reference.request(case)))
