"""The gateway in front of the real router, whose workers write what a test tells them to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import pytest_asyncio

from gateway import GatewayConfig, GatewayProgram
from tests.gateway.streams import CHAT, COMPLETIONS, comparable, join_stream, read_stream
from tests.router.cluster import Cluster, running, until
from tests.router.fakes import Script
from tests.router.tiny_text import CONTEXT, END, VOCAB, byte_ids

TEXT = "Grüße 🌙 <stop> vom Mond"

USER = [{"role": "user", "content": "Hi"}]


@asynccontextmanager
async def gateway_for(cluster: Cluster) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a gateway in front of a router."""
    config = GatewayConfig(routers=(f"127.0.0.1:{cluster.program.port}",), port=0, drain_seconds=0.2)
    gateway = GatewayProgram(config)
    await gateway.start()
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{gateway.port}", timeout=20) as http:
            yield http
    finally:
        await gateway.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[httpx.AsyncClient]:
    """A client of a gateway that several tests use."""
    async with running("d0") as cluster, gateway_for(cluster) as http:
        yield http


async def test_joined_streams_equal_whole_answers() -> None:
    """Rows 1 to 7, 14: with characters and stop strings that span tokens, split or not."""
    cases: list[tuple[str, dict[str, Any]]] = [
        (COMPLETIONS, {"prompt": "Hi", "max_tokens": 100}),
        (COMPLETIONS, {"prompt": "x" * 100, "max_tokens": 100, "stop": ["<stop>", "never"], "n": 2}),
        (COMPLETIONS, {"prompt": "Hi", "max_tokens": 100, "stop": "ße 🌙 <st", "include_stop_str_in_output": True}),
        (COMPLETIONS, {"prompt": "Hi", "max_tokens": 8, "logprobs": 0, "return_token_ids": True}),
        (COMPLETIONS, {"prompt": "Hi", "max_tokens": 0, "echo": True}),
        (COMPLETIONS, {"prompt": [byte_ids("Hü"), byte_ids("x" * 100)], "max_tokens": 5, "echo": True}),
        (COMPLETIONS, {"prompt": "Hi", "max_tokens": 100, "skip_special_tokens": False}),
        (CHAT, {"messages": USER, "stop": ["<s", " vom"]}),
        (CHAT, {"messages": USER, "n": 3, "logprobs": True, "max_tokens": 13, "return_token_ids": True}),
        (CHAT, {"messages": USER, "stop_token_ids": [ord("m")]}),
    ]
    async with running("p0", "d0", script=Script([TEXT])) as cluster, gateway_for(cluster) as http:
        for path, body in cases:
            response = await http.post(path, json=body)
            assert response.status_code == 200, response.text
            chunks = await read_stream(http, path, body)
            assert comparable(join_stream(path, chunks)) == comparable(response.json())


async def test_a_stop_string_is_cut_exactly_and_named() -> None:
    """Rows 3, 4, 6."""
    async with running("d0", script=Script([TEXT])) as cluster, gateway_for(cluster) as http:
        body = {"prompt": "Hi", "max_tokens": 100, "stop": ["<stop>"]}
        choice = (await http.post(COMPLETIONS, json=body)).json()["choices"][0]
        assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == ("Grüße 🌙 ", "stop", "<stop>")


async def test_control_tokens_in_messages_are_text() -> None:
    """Rows 18, 19."""
    async with running("d0") as cluster, gateway_for(cluster) as http:
        body = {"messages": [{"role": "user", "content": "<|stop|>"}], "max_tokens": 1, "return_token_ids": True}
        got = (await http.post(CHAT, json=body)).json()
        start, stop = VOCAB - 2, VOCAB - 1
        expected = [start, *byte_ids("user:<|stop|>"), stop, start, *byte_ids("assistant:")]
        assert got["prompt_token_ids"] == expected


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        (COMPLETIONS, {"prompt": ""}, 400, "prompt"),
        (COMPLETIONS, {"prompt": [VOCAB]}, 400, "prompt"),
        (COMPLETIONS, {"prompt": "x" * CONTEXT}, 400, "prompt"),
        (COMPLETIONS, {"prompt": "x", "n": 129}, 400, "n"),
        (COMPLETIONS, {"prompt": "x", "stop": ["y"] * 5000}, 400, "stop"),
        (COMPLETIONS, {"prompt": "x", "stop": ""}, 400, "stop"),
        (COMPLETIONS, {"prompt": "x", "logit_bias": {str(VOCAB): 1}}, 400, "logit_bias"),
        (COMPLETIONS, {"prompt": "x", "stop_token_ids": [VOCAB]}, 400, "stop_token_ids"),
        (COMPLETIONS, {"prompt": "x", "logprobs": 21}, 400, "logprobs"),
        (COMPLETIONS, {"prompt": "x", "temperature": -0.1}, 400, "temperature"),
        (COMPLETIONS, {"prompt": "x", "top_p": 1.1}, 400, "top_p"),
        (COMPLETIONS, {"prompt": "x", "min_tokens": 17}, 400, "min_tokens"),
        (COMPLETIONS, {"prompt": "x", "model": "other"}, 404, "model"),
        (CHAT, {"messages": USER, "logprobs": True, "top_logprobs": 21}, 400, "top_logprobs"),
        (CHAT, {"messages": [{"role": "user", "content": "x" * CONTEXT}]}, 400, "messages"),
        (CHAT, {"messages": USER, "model": "other"}, 404, "model"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_what_the_router_refuses_is_named(
    shared: httpx.AsyncClient, path: str, body: dict[str, Any], status: int, param: str
) -> None:
    """Rows 11, 12, 13, 15, 20, 21: streaming or not, and the next request is served."""
    for stream in (False, True):
        response = await shared.post(path, json={**body, "stream": stream})
        assert response.status_code == status, response.text
        assert response.json()["error"]["param"] == param
        assert len(response.content) < 1500
    assert (await shared.post(COMPLETIONS, json={"prompt": "Hi"})).status_code == 200


async def test_a_prompt_past_the_context_is_told_both_numbers_and_max_tokens_is_cut() -> None:
    """Row 21."""
    async with running("d0", script=Script(["y" * CONTEXT])) as cluster, gateway_for(cluster) as http:
        response = await http.post(COMPLETIONS, json={"prompt": "x" * (CONTEXT + 9)})
        assert str(CONTEXT) in response.json()["error"]["message"]
        assert str(CONTEXT + 9) in response.json()["error"]["message"]
        got = (await http.post(COMPLETIONS, json={"prompt": "x" * 500, "max_tokens": 100})).json()
        assert got["usage"]["completion_tokens"] == CONTEXT - 500
        assert got["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tier", ["prefill", "decode"])
async def test_a_hang_up_reaches_the_workers_within_a_second(stream: bool, tier: str) -> None:
    """Row 17: mid-prefill and while decoding."""
    gate = asyncio.Event()
    script = Script([TEXT])
    script.prefill_gate, script.decode_gate = (gate, None) if tier == "prefill" else (None, gate)
    async with running("p0", "d0", script=script) as cluster, gateway_for(cluster) as http:
        body = {"prompt": "x" * 100, "max_tokens": 50, "stream": stream}
        asking = asyncio.create_task(http.post(COMPLETIONS, json=body))
        await until(lambda: any(worker.active for worker in cluster.workers.values()))
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await cluster.at_rest()
        gate.set()


async def test_without_workers_nothing_is_ready() -> None:
    async with running() as cluster, gateway_for(cluster) as http:
        assert (await http.get("/readyz")).status_code == 503
        assert (await http.post(COMPLETIONS, json={"prompt": "Hi"})).status_code == 503
        await cluster.add("d0")
        assert (await http.get("/readyz")).status_code == 200


async def test_tokens_and_text_are_inverse() -> None:
    async with running("d0") as cluster, gateway_for(cluster) as http:
        tokens = (await http.post("/tokenize", json={"prompt": "Hü<|end|>"})).json()["tokens"]
        assert tokens == [*byte_ids("Hü"), END]
        assert (await http.post("/detokenize", json={"tokens": tokens})).json() == {"prompt": "Hü<|end|>"}
        refused = await http.post("/detokenize", json={"tokens": [VOCAB]})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tokens")
