"""The official client drives the gateway, and its types fit."""

from collections.abc import AsyncIterator

import openai
import pytest
import pytest_asyncio
from openai.types.chat import ChatCompletionUserMessageParam

from halfmoon.errors import OverloadedError, WorkerFailedError
from tests.gateway.fakes import Served, failing, serving
from tests.gateway.speaker import answer

pytestmark = pytest.mark.asyncio(loop_scope="module")

USER: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "Hi"}]


@pytest_asyncio.fixture(loop_scope="module")
async def client(served: Served) -> AsyncIterator[openai.AsyncOpenAI]:
    """A client for the shared gateway that does not try again."""
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="any", max_retries=0) as made:
        yield made


async def test_chat(client: openai.AsyncOpenAI) -> None:
    got = await client.chat.completions.create(model="moon", messages=USER, n=2, logprobs=True, top_logprobs=2)
    assert [choice.message.content for choice in got.choices] == [answer(0), answer(1)]
    assert got.usage is not None
    assert got.usage.prompt_tokens_details is not None
    assert got.usage.prompt_tokens_details.cached_tokens == 3
    assert got.choices[0].logprobs is not None
    assert got.choices[0].logprobs.content is not None
    assert bytes(byte for entry in got.choices[0].logprobs.content for byte in entry.bytes or []).decode() == answer(0)


async def test_chat_stream(client: openai.AsyncOpenAI) -> None:
    """Rows 8, 9, 23."""
    stream = await client.chat.completions.create(
        model="moon", messages=USER, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == answer(0)
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None


async def test_completions(client: openai.AsyncOpenAI) -> None:
    got = await client.completions.create(
        model="moon", prompt=[[72, 105]], max_tokens=2, logprobs=1, echo=True, seed=-5
    )
    assert got.choices[0].text == "HiGr"
    assert got.choices[0].logprobs is not None
    assert got.choices[0].logprobs.text_offset == [0, 1, 2, 3]


async def test_completions_stream(client: openai.AsyncOpenAI) -> None:
    stream = await client.completions.create(model="moon", prompt="Hi", max_tokens=40, stream=True)
    assert "".join([chunk.choices[0].text async for chunk in stream]) == answer(0)


async def test_extensions_pass_through_the_extra_body(client: openai.AsyncOpenAI) -> None:
    got = await client.completions.create(
        model="moon", prompt="Hi", max_tokens=2, extra_body={"return_token_ids": True, "prompt_logprobs": 0}
    )
    extra = got.choices[0].model_extra or {}
    assert extra["token_ids"] == list(b"Gr")
    assert extra["prompt_token_ids"] == list(b"Hi")
    assert extra["prompt_logprobs"][0] is None


async def test_models(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["moon"]
    assert (await client.models.retrieve("moon")).id == "moon"


async def test_errors_are_the_clients_own(served: Served, client: openai.AsyncOpenAI) -> None:
    """Rows 20, 24."""
    with pytest.raises(openai.NotFoundError):
        await client.chat.completions.create(model="sun", messages=USER)
    with pytest.raises(openai.BadRequestError, match="tools is not supported"):
        await client.chat.completions.create(
            model="moon", messages=USER, tools=[{"type": "function", "function": {"name": "f"}}]
        )
    served.router.script = failing(OverloadedError("full", retry_after=1))
    with pytest.raises(openai.RateLimitError):
        await client.completions.create(model="moon", prompt="Hi", stream=True)
    served.router.script = failing(WorkerFailedError("worker died"), after=3)
    stream = await client.completions.create(model="moon", prompt="Hi", stream=True)
    with pytest.raises(openai.APIError, match="worker died"):
        [chunk async for chunk in stream]


async def test_the_key_is_checked() -> None:
    async with serving(api_key="right") as served:
        async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="wrong", max_retries=0) as client:
            with pytest.raises(openai.AuthenticationError):
                await client.models.list()
        async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="right", max_retries=0) as client:
            assert await client.completions.create(model="moon", prompt="Hi")
