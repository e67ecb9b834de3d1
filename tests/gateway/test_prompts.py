"""Lists of prompts: run together, bounded, and ended together."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from halfmoon.errors import InvalidRequestError
from halfmoon.v1.router_pb2 import GenerateRequest, GenerateResponse
from tests.gateway.fakes import Served, serving, until
from tests.gateway.speaker import answer, speak
from tests.gateway.streams import COMPLETIONS, read_stream

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("stream", [False, True])
async def test_one_failing_prompt_fails_the_whole_and_cancels_the_rest(served: Served, stream: bool) -> None:
    async def script(request: GenerateRequest) -> AsyncIterator[GenerateResponse]:
        await until(lambda: len(served.router.requests) == 3, 5)
        if request.text == "bad":
            raise InvalidRequestError("the prompt is empty", param="prompt")
        await asyncio.Event().wait()
        yield GenerateResponse()

    served.router.script = script
    response = await served.http.post(COMPLETIONS, json={"prompt": ["a", "bad", "b"], "stream": stream})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "prompt"
    await until(lambda: served.router.open == 0)
    assert len(served.router.cancelled) == 2


async def test_prompts_run_together_but_not_all_at_once() -> None:
    async def script(request: GenerateRequest) -> AsyncIterator[GenerateResponse]:
        await asyncio.sleep(0.02)
        async for event in speak(request):
            yield event

    async with serving(script, prompts_at_once=4) as served:
        got = await served.post(COMPLETIONS, prompt=["Hi"] * 10, max_tokens=40)
        assert served.router.most_open == 4
    assert [choice["text"] for choice in got["choices"]] == [answer(0)] * 10


async def test_chunks_of_several_prompts_mix(served: Served) -> None:
    """A prompt that is slow holds up no other."""

    async def script(request: GenerateRequest) -> AsyncIterator[GenerateResponse]:
        async for event in speak(request):
            yield event
            if request.text == "slow" and event.HasField("prompt"):
                await asyncio.sleep(0.1)

    served.router.script = script
    chunks = await read_stream(served.http, COMPLETIONS, {"prompt": ["slow", "quick"], "max_tokens": 3})
    finished = [c["index"] for chunk in chunks for c in chunk["choices"] if c["finish_reason"]]
    assert finished == [1, 0]


async def test_a_long_list_is_answered_in_order(served: Served) -> None:
    prompts = [f"p{index}" for index in range(300)]
    got = await served.post(COMPLETIONS, prompt=prompts, max_tokens=0, echo=True)
    assert [choice["text"] for choice in got["choices"]] == prompts
