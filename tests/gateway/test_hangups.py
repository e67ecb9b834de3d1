"""A client that hangs up cancels what it asked for, within a second."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from halfmoon.v1.router_pb2 import GenerateRequest, GenerateResponse
from tests.gateway.fakes import Served, serving, stalling, until
from tests.gateway.speaker import speak
from tests.gateway.streams import CHAT, COMPLETIONS

pytestmark = pytest.mark.asyncio(loop_scope="module")

USER = [{"role": "user", "content": "Hi"}]

BODIES: list[tuple[str, dict[str, Any]]] = [(COMPLETIONS, {"prompt": "Hi"}), (CHAT, {"messages": USER})]


async def hang_up_once(served: Served, path: str, body: dict[str, Any], when_open: int = 1) -> None:
    """Asks, waits until the router is at work, and closes the connection."""
    async with httpx.AsyncClient(base_url=served.url) as client:
        asking = asyncio.create_task(client.post(path, json=body))
        await until(lambda: served.router.open == when_open, 5)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


async def until_idle(served: Served) -> None:
    """Waits until nothing is under way at the gateway, which must be within a second."""
    async with asyncio.timeout(1):
        for name in ("halfmoon_gateway_streams_open", "halfmoon_gateway_requests_running"):
            while await served.metric(name):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("after", [0, 1, 5], ids=["queued", "mid-prefill", "decoding"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), BODIES)
async def test_the_routers_call_is_cancelled_within_a_second(
    served: Served, path: str, body: dict[str, Any], stream: bool, after: int
) -> None:
    """Row 17."""
    served.router.script = stalling(after=after)
    await hang_up_once(served, path, {**body, "stream": stream})
    await until(lambda: served.router.open == 0)
    assert len(served.router.cancelled) == 1
    await until_idle(served)


@pytest.mark.parametrize("stream", [False, True])
async def test_every_prompt_of_a_list_is_cancelled(stream: bool) -> None:
    """Row 17: those that the router has, and those that were still to be sent."""
    async with serving(stalling(after=1), prompts_at_once=5) as served:
        await hang_up_once(served, COMPLETIONS, {"prompt": ["Hi"] * 9, "stream": stream}, when_open=5)
        await until(lambda: served.router.open == 0)
        assert len(served.router.cancelled) == 5
        assert len(served.router.requests) == 5


async def test_a_reader_that_leaves_in_the_middle_of_a_busy_stream_cancels_it(served: Served) -> None:
    """Row 17: the hang-up is seen while chunks are being written, too."""
    served.router.script = _chatter
    async with served.http.stream("POST", COMPLETIONS, json={"prompt": "Hi", "stream": True}) as response:
        async for line in response.aiter_lines():
            if line:
                break
    await until(lambda: served.router.open == 0)
    assert len(served.router.cancelled) == 1


async def test_a_stream_that_is_left_unread_is_cancelled() -> None:
    """A client that stays but reads nothing holds its slot for a bounded time."""
    async with serving(_flood, write_seconds=0.3) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.gateway.port, limit=1024)
        body = b'{"prompt": "Hi", "stream": true}'
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        await until(lambda: served.router.open == 1, 5)
        await until(lambda: served.router.open == 0, 10)
        writer.close()
        assert len(served.router.cancelled) == 1
        assert not reader.at_eof()


async def test_a_client_that_leaves_while_sending_its_body_is_forgotten(served: Served) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", served.gateway.port)
    writer.write(b'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"prompt": "H')
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.close()
    await writer.wait_closed()
    await until_idle(served)
    assert (await served.post(COMPLETIONS, prompt="Hi"))["choices"]


async def _chatter(request: GenerateRequest) -> AsyncIterator[GenerateResponse]:
    while True:
        async for event in speak(request):
            if not event.HasField("usage") and not event.delta.finish_reason:
                yield event
                await asyncio.sleep(0.002)


async def _flood(request: GenerateRequest) -> AsyncIterator[GenerateResponse]:
    events = [event async for event in speak(request)]
    yield events[0]
    events[1].delta.text = "x" * 100_000
    while True:
        yield events[1]
