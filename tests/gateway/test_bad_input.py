"""Row 20 and its kind: whatever a client sends, the answer is an error of the API, and the server goes on."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.gateway.fakes import Served, serving
from tests.gateway.streams import CHAT, COMPLETIONS

pytestmark = pytest.mark.asyncio(loop_scope="module")

USER = [{"role": "user", "content": "Hi"}]

BROKEN: list[bytes] = [
    b"",
    b"{",
    b"null",
    b"[]",
    b'"prompt"',
    b'{"prompt": "Hi"',
    b'{"prompt": "Hi"} trailing',
    b"{'prompt': 'Hi'}",
    b'{"prompt": "\xff\xfe"}',
    b'{"prompt": "\\ud800"}',
    b'{"prompt": "Hi", "temperature": NaN}',
    b'{"prompt": "Hi", "temperature": Infinity}',
    b'{"prompt": "Hi", "temperature": 1e999}',
    b'{"prompt": "Hi", "seed": 1' + b"0" * 5000 + b"}",
    b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"prompt": ' + b"[" * 100_000,
    b'{"prompt": "Hi", "tools": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
    '{"prompt": "Hi"}'.encode("utf-16"),
    b'\xef\xbb\xbf{"prompt": "Hi"}',
    b"\x00" * 100,
]

BOTH: list[tuple[str, Any]] = [
    ("model", 3),
    ("n", 0),
    ("n", -1),
    ("n", 1.5),
    ("n", "2"),
    ("n", True),
    ("n", 2049),
    ("n", 10**30),
    ("max_tokens", -1),
    ("max_tokens", 2**32),
    ("max_tokens", "many"),
    ("min_tokens", -1),
    ("temperature", "hot"),
    ("temperature", 1e300),
    ("temperature", [1]),
    ("top_p", "x"),
    ("top_p", -1e39),
    ("top_k", -2),
    ("top_k", 1.5),
    ("min_p", {}),
    ("presence_penalty", "1"),
    ("frequency_penalty", 1e39),
    ("repetition_penalty", False),
    ("seed", 2**64),
    ("seed", -(2**63) - 1),
    ("seed", "x"),
    ("seed", 1.5),
    ("stop", 3),
    ("stop", ["a", 3]),
    ("stop", {"a": "b"}),
    ("stop_token_ids", [-1]),
    ("stop_token_ids", [2**32]),
    ("stop_token_ids", "1"),
    ("logit_bias", {"a": 1}),
    ("logit_bias", {"1.5": 1}),
    ("logit_bias", {"-1": 1}),
    ("logit_bias", {"": 1}),
    ("logit_bias", {"٣": 1}),
    ("logit_bias", {"99999999999": 1}),
    ("logit_bias", {"9" * 5000: 1}),
    ("logit_bias", {"1": "much"}),
    ("logit_bias", {"1": 1e300}),
    ("logit_bias", [1, 2]),
    ("stream", "yes"),
    ("stream", 1),
    ("stream_options", 1),
    ("stream_options", {"include_usage": "yes"}),
    ("prompt_logprobs", -1),
    ("prompt_logprobs", True),
    ("return_token_ids", 1),
    ("skip_special_tokens", "no"),
    ("ignore_eos", 0),
    ("priority", 2**31),
    ("priority", "high"),
    ("timeout", 0),
    ("timeout", -1),
    ("timeout", "1s"),
    ("guided_json", {"type": "object"}),
    ("structured_outputs", {"json": {}}),
    ("logits_processors", ["x"]),
    ("use_beam_search", True),
    ("response_format", {"type": "json_object"}),
    ("response_format", {"type": "json_schema", "json_schema": {}}),
]

COMPLETION_ONLY: list[tuple[str, Any]] = [
    ("prompt", None),
    ("prompt", []),
    ("prompt", [[]]),
    ("prompt", [[1], []]),
    ("prompt", [-1]),
    ("prompt", [[-1]]),
    ("prompt", [2**32]),
    ("prompt", [1.5]),
    ("prompt", [True]),
    ("prompt", [None]),
    ("prompt", ["a", 1]),
    ("prompt", [1, "a"]),
    ("prompt", ["a", [1]]),
    ("prompt", [[1], "a"]),
    ("prompt", [[1], 2]),
    ("prompt", [[[1]]]),
    ("prompt", 3),
    ("prompt", {"text": "Hi"}),
    ("prompt", ["a"] * 2049),
    ("logprobs", True),
    ("logprobs", -1),
    ("echo", "yes"),
    ("best_of", 2),
    ("best_of", 10**40),
    ("suffix", "the end"),
]

CHAT_ONLY: list[tuple[str, Any]] = [
    ("messages", None),
    ("messages", []),
    ("messages", "Hi"),
    ("messages", {}),
    ("messages", ["Hi"]),
    ("messages", [{}]),
    ("messages", [{"role": "user"}]),
    ("messages", [{"role": "user", "content": None}]),
    ("messages", [{"role": "user", "content": 3}]),
    ("messages", [{"role": "user", "content": ["Hi"]}]),
    ("messages", [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
    ("messages", [{"role": "user", "content": [{"type": "text"}]}]),
    ("messages", [{"content": "Hi"}]),
    ("messages", [{"role": "", "content": "Hi"}]),
    ("messages", [{"role": 1, "content": "Hi"}]),
    ("messages", [{"role": "tool", "content": "Hi", "tool_call_id": "1"}]),
    ("messages", [{"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]}]),
    ("logprobs", 1),
    ("top_logprobs", 1),
    ("max_completion_tokens", -1),
    ("tools", [{"type": "function", "function": {"name": "f"}}]),
    ("tool_choice", "required"),
    ("tool_choice", {"type": "function", "function": {"name": "f"}}),
    ("functions", [{"name": "f"}]),
    ("function_call", {"name": "f"}),
    ("modalities", ["text", "audio"]),
    ("audio", {"voice": "x"}),
    ("chat_template", "{{ messages }}"),
    ("chat_template_kwargs", {"a": 1}),
    ("continue_final_message", True),
    ("documents", [{"title": "x"}]),
    ("web_search_options", {}),
    ("echo", True),
]


async def assert_refused(served: Served, path: str, content: bytes, param: str | None) -> None:
    """The request ends in a 400 of the API that names `param`, without reaching the router; the next one is served."""
    response = await served.http.post(path, content=content)
    assert response.status_code == 400, response.text
    assert len(response.content) < 1500
    detail = response.json()["error"]
    assert set(detail) == {"message", "type", "param", "code"}
    assert detail["type"] == "invalid_request_error"
    assert detail["param"] == param
    if param is not None:
        assert param in detail["message"]
    assert not served.router.requests
    assert (await served.http.get("/v1/models")).status_code == 200


@pytest.mark.parametrize("content", BROKEN, ids=lambda content: repr(content[:24]))
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
async def test_a_body_that_is_not_an_object_in_json_is_refused(served: Served, path: str, content: bytes) -> None:
    response = await served.http.post(path, content=content)
    assert response.status_code == 400, response.text
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert len(response.content) < 1500
    assert not served.router.requests


@pytest.mark.parametrize(("param", "value"), [*BOTH, *COMPLETION_ONLY], ids=lambda value: repr(value)[:24])
async def test_a_wrong_parameter_of_a_completion_is_named(served: Served, param: str, value: object) -> None:
    """Rows 11, 12, 13, 15."""
    content = json.dumps({"prompt": "Hi", param: value}).encode()
    await assert_refused(served, COMPLETIONS, content, param)


@pytest.mark.parametrize(("param", "value"), [*BOTH, *CHAT_ONLY], ids=lambda value: repr(value)[:24])
async def test_a_wrong_parameter_of_a_chat_is_named(served: Served, param: str, value: object) -> None:
    """Rows 11, 15."""
    content = json.dumps({"messages": USER, param: value}).encode()
    await assert_refused(served, CHAT, content, param)


async def test_choices_of_all_prompts_together_are_bounded(served: Served) -> None:
    """Row 15."""
    await assert_refused(served, COMPLETIONS, json.dumps({"prompt": ["a"] * 1025, "n": 2}).encode(), "n")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1/nothing", 404),
        ("POST", "/v1/embeddings", 404),
        ("GET", "/v1/completions/", 404),
        ("GET", "/docs", 404),
        ("GET", "/openapi.json", 404),
        ("GET", COMPLETIONS, 405),
        ("DELETE", CHAT, 405),
        ("POST", "/v1/models", 405),
        ("POST", "/health", 405),
    ],
)
async def test_an_unknown_route_or_method_gets_a_body_of_the_api(
    served: Served, method: str, path: str, status: int
) -> None:
    """Row 20."""
    response = await served.http.request(method, path)
    assert response.status_code == status
    detail = response.json()["error"]
    assert set(detail) == {"message", "type", "param", "code"}
    assert detail["type"] == "invalid_request_error"


@pytest.mark.parametrize("factor", [1.01, 3, 20])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_past_the_bound_is_refused_without_echo(factor: float, chunked: bool) -> None:
    """Row 20: the answer arrives, also when the client is still sending."""
    limit = 200_000
    content = b'{"prompt": "' + b"x" * int(limit * factor) + b'"}'

    async def parts() -> AsyncIterator[bytes]:
        yield content

    async with serving(max_body_bytes=limit) as served:
        response = await served.http.post(COMPLETIONS, content=parts() if chunked else content)
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "body_too_large"
        assert len(response.content) < 500
        assert (await served.post(COMPLETIONS, prompt="x" * (limit - 100)))["choices"]


async def test_a_body_that_never_comes_is_given_up() -> None:
    async with serving(body_seconds=0.1) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.gateway.port)
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")
        writer.close()
        await writer.wait_closed()
