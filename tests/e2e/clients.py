"""What clients of a whole server do: ask, read streams, hang up, and go on while something else breaks."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx

from tests.e2e import reference
from tests.e2e.fleet import Fleet
from tests.e2e.small import CONTROLS, VOCABULARY

LANES = 2
"""Requests under way at once while something else breaks; each has one page."""

_drawn: Iterator[int] = iter(range(1, 1 << 30))


def fresh_prompt(tokens: int) -> list[int]:
    """Token ids of the small model that no server has seen."""
    ids = random.Random(next(_drawn))
    return [ids.randrange(CONTROLS, VOCABULARY) for _ in range(tokens)]


def body(prompt: Sequence[int], max_tokens: int = 16, **more: object) -> dict[str, object]:
    """A greedy completion of exactly so many tokens."""
    fields = {"max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    return {"prompt": list(prompt), **fields, **more}


async def tokens_of(client: httpx.AsyncClient, request: dict[str, object]) -> list[int]:
    """The answer's token ids; fails unless it is 200."""
    ids: list[int] = (await reference.complete(client, **request))["choices"][0]["token_ids"]
    return ids


async def computed_anew(client: httpx.AsyncClient, request: dict[str, object]) -> list[int]:
    """The answer's token ids with no prefix cache in use: a request for prompt log-probabilities reuses nothing."""
    return await tokens_of(client, {**request, "prompt_logprobs": 0})


@dataclass(slots=True)
class Streamed:
    """What has come of a streamed completion, and when on the loop's clock."""

    tokens: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


@asynccontextmanager
async def streaming(client: httpx.AsyncClient, request: dict[str, object]) -> AsyncIterator[AsyncIterator[Streamed]]:
    """A streamed completion, told anew with each piece; leaving early hangs up."""
    async with client.stream("POST", "/v1/completions", json={**request, "stream": True}, timeout=120) as response:
        assert response.status_code == 200, await response.aread()
        yield _pieces(response)


async def _pieces(response: httpx.Response) -> AsyncIterator[Streamed]:
    streamed = Streamed()
    async for line in response.aiter_lines():
        if not line.startswith("data: {"):
            continue
        event = json.loads(line.removeprefix("data: "))
        assert "error" not in event, event
        now = asyncio.get_running_loop().time()
        for choice in event["choices"]:
            ids = choice.get("token_ids") or []
            streamed.tokens += ids
            streamed.times += [now] * len(ids)
        yield streamed


@asynccontextmanager
async def undisturbed(fleet: Fleet) -> AsyncIterator[None]:
    """Short requests go on, one after the other in each lane, and every one of them is answered as it was before."""
    ending = asyncio.Event()

    async def lane(client: httpx.AsyncClient, request: dict[str, object], expected: list[int]) -> None:
        last = False
        while not last:
            last = ending.is_set()
            assert await tokens_of(client, request) == expected

    async with httpx.AsyncClient(base_url=fleet.url) as client, asyncio.TaskGroup() as group:
        for _ in range(LANES):
            request = body(fresh_prompt(20), 32)
            group.create_task(lane(client, request, await computed_anew(client, request)))
        yield
        ending.set()
