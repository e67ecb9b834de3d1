"""Streams: the order and shape of chunks, and that their join is the whole answer."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from halfmoon.v1 import common_pb2, router_pb2
from tests.gateway.fakes import Served
from tests.gateway.speaker import ANSWER, answer
from tests.gateway.streams import CHAT, COMPLETIONS, comparable, join_stream, read_stream

pytestmark = pytest.mark.asyncio(loop_scope="module")

USER = [{"role": "user", "content": "Hi"}]

VARIATIONS: list[dict[str, Any]] = [
    {},
    {"n": 3},
    {"max_tokens": 1},
    {"max_tokens": 0},
    {"max_tokens": 3, "n": 2},
    {"return_token_ids": True},
    {"return_token_ids": True, "max_tokens": 0},
    {"prompt_logprobs": 2, "n": 2},
    {"return_token_ids": True, "prompt_logprobs": 0, "return_tokens_as_token_ids": True, "n": 2},
    {"stream_options": {"include_usage": True}},
]

COMPLETION_CASES: list[dict[str, Any]] = [
    *({"prompt": "Hé", "max_tokens": 40, **variation} for variation in VARIATIONS),
    {"prompt": "Hé", "logprobs": 2, "max_tokens": 40},
    {"prompt": "Hé", "logprobs": 0, "max_tokens": 40, "n": 2, "return_token_ids": True},
    {"prompt": "Hé", "echo": True, "max_tokens": 40},
    {"prompt": "Hé", "echo": True, "logprobs": 3, "n": 2},
    {"prompt": "Hé", "echo": True, "logprobs": 1, "max_tokens": 0, "return_token_ids": True, "prompt_logprobs": 2},
    {"prompt": ["a", "bc", "d"], "n": 2, "max_tokens": 40, "logprobs": 1},
    {"prompt": [[72], [73, 74]], "echo": True, "return_token_ids": True},
]

CHAT_CASES: list[dict[str, Any]] = [
    *({"messages": USER, **variation} for variation in VARIATIONS),
    {"messages": USER, "logprobs": True},
    {"messages": USER, "logprobs": True, "top_logprobs": 3, "n": 2, "return_token_ids": True},
    {"messages": USER, "logprobs": True, "max_tokens": 0},
]


@pytest.mark.parametrize(
    ("path", "body"),
    [*((COMPLETIONS, body) for body in COMPLETION_CASES), *((CHAT, body) for body in CHAT_CASES)],
    ids=str,
)
async def test_joined_stream_equals_the_whole_answer(served: Served, path: str, body: dict[str, Any]) -> None:
    """Rows 1, 2, 4, 6, 7, 10, 14: one code path, so text, ids, log-probabilities and finish reasons agree."""
    whole = await served.post(path, **body)
    chunks = await read_stream(served.http, path, body)
    assert comparable(join_stream(path, chunks)) == comparable(whole)
    assert len({chunk["id"] for chunk in chunks}) == 1


async def test_no_chunk_holds_a_broken_character(served: Served) -> None:
    """Row 1."""
    chunks = await read_stream(served.http, COMPLETIONS, {"prompt": "Hi", "max_tokens": 40})
    texts = [choice["text"] for chunk in chunks for choice in chunk["choices"]]
    assert "".join(texts) == answer(0)
    assert not any("\ufffd" in text for text in texts)


async def test_no_chunk_is_empty_without_need(served: Served) -> None:
    """Row 5: what says nothing new is not sent."""
    body = {"prompt": "Hi", "max_tokens": 40, "stop": ["never", "ever"]}
    chunks = await read_stream(served.http, COMPLETIONS, body)
    assert [choice["text"] for chunk in chunks for choice in chunk["choices"]] == [*ANSWER, "0"]


@pytest.mark.parametrize(("path", "body"), [(COMPLETIONS, {"prompt": "Hi"}), (CHAT, {"messages": USER})])
async def test_finish_reason_is_null_until_the_choices_last_chunk(
    served: Served, path: str, body: dict[str, Any]
) -> None:
    """Row 8."""
    chunks = await read_stream(served.http, path, {**body, "n": 2, "max_tokens": 4})
    for index in range(2):
        choices = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
        assert all(choice["finish_reason"] is None for choice in choices[:-1])
        assert choices[-1]["finish_reason"] == "length"


@pytest.mark.parametrize(("path", "body"), [(COMPLETIONS, {"prompt": ["Hi", "Ho"]}), (CHAT, {"messages": USER})])
async def test_usage_is_one_last_chunk_where_asked_for(served: Served, path: str, body: dict[str, Any]) -> None:
    """Row 9."""
    whole = await served.post(path, **body)
    chunks = await read_stream(served.http, path, {**body, "stream_options": {"include_usage": True}})
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == whole["usage"]
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in chunks[:-1])


@pytest.mark.parametrize("options", [{}, {"stream_options": None}, {"stream_options": {"include_usage": False}}])
@pytest.mark.parametrize(("path", "body"), [(COMPLETIONS, {"prompt": "Hi"}), (CHAT, {"messages": USER})])
async def test_usage_is_nowhere_where_not_asked_for(
    served: Served, path: str, body: dict[str, Any], options: dict[str, Any]
) -> None:
    """Row 9."""
    for chunk in await read_stream(served.http, path, {**body, **options}):
        assert "usage" not in chunk
        assert chunk["choices"]


async def test_every_choice_begins_with_its_role(served: Served) -> None:
    """Row 23."""
    chunks = await read_stream(served.http, CHAT, {"messages": USER, "n": 3})
    for index in range(3):
        deltas = [c["delta"] for chunk in chunks for c in chunk["choices"] if c["index"] == index]
        assert deltas[0] == {"role": "assistant", "content": ""}
        assert all("role" not in delta for delta in deltas[1:])
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}


async def test_prompt_ids_are_on_the_first_chunk_alone(served: Served) -> None:
    chunks = await read_stream(served.http, CHAT, {"messages": USER, "n": 2, "return_token_ids": True})
    assert chunks[0]["prompt_token_ids"] == list(b"user:Hi")
    assert not any("prompt_token_ids" in chunk for chunk in chunks[1:])


async def test_chunks_come_as_they_are_made(served: Served) -> None:
    """The head and first chunks arrive while the router is still at work."""

    async def script(request: router_pb2.GenerateRequest) -> AsyncIterator[router_pb2.GenerateResponse]:
        yield router_pb2.GenerateResponse(prompt=router_pb2.PromptInfo(model="moon"))
        yield router_pb2.GenerateResponse(delta=router_pb2.ChoiceDelta(text="early", token_ids=[1]))
        await proceed.wait()
        last = router_pb2.ChoiceDelta(text="!", token_ids=[2], finish_reason=common_pb2.FINISH_REASON_STOP)
        yield router_pb2.GenerateResponse(delta=last)
        yield router_pb2.GenerateResponse(usage=common_pb2.Usage())

    proceed = asyncio.Event()
    served.router.script = script
    async with served.http.stream("POST", COMPLETIONS, json={"prompt": "Hi", "stream": True}) as response:
        lines = (line async for line in response.aiter_lines() if line)
        assert '"early"' in await anext(lines)
        proceed.set()
        assert [line async for line in lines][-1] == "data: [DONE]"


async def test_line_separators_in_text_do_not_break_events(served: Served) -> None:
    """Some clients split lines at U+2028, U+2029 and U+0085 too."""
    text = "a\u2028b\u2029c\u0085d\r\ne"

    async def script(request: router_pb2.GenerateRequest) -> AsyncIterator[router_pb2.GenerateResponse]:
        yield router_pb2.GenerateResponse(prompt=router_pb2.PromptInfo(model="moon"))
        delta = router_pb2.ChoiceDelta(text=text, finish_reason=common_pb2.FINISH_REASON_STOP)
        yield router_pb2.GenerateResponse(delta=delta)
        yield router_pb2.GenerateResponse(usage=common_pb2.Usage())

    served.router.script = script
    chunks = await read_stream(served.http, COMPLETIONS, {"prompt": "Hi"})
    assert chunks[0]["choices"][0]["text"] == text
