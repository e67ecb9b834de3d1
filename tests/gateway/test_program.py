"""The gateway as a program: addresses, draining, several routers, logs."""

import asyncio
import logging

import httpx
import pytest

from gateway import GatewayConfig, GatewayProgram
from halfmoon.errors import ConfigError, UnavailableError
from tests.gateway.fakes import failing, routing, serving, stalling, until
from tests.gateway.speaker import answer
from tests.gateway.streams import COMPLETIONS, read_stream

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    "wrong",
    [
        {"routers": ()},
        {"routers": ("",)},
        {"port": -1},
        {"port": 65536},
        {"api_key": ""},
        {"api_key": "ключ"},
        {"drain_seconds": -1},
        {"request_seconds": float("inf")},
        {"max_body_bytes": 0},
    ],
)
async def test_a_config_that_cannot_work_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        GatewayConfig(**{"routers": ("localhost:1",), **wrong})  # type: ignore[arg-type]


async def test_a_port_in_use_is_one_clear_error() -> None:
    async with serving() as served:
        second = GatewayProgram(GatewayConfig(routers=("127.0.0.1:9",), port=served.gateway.port))
        with pytest.raises(ConfigError, match=f"{served.gateway.port}: Address already in use"):
            await second.start()
        await second.stop()


async def test_draining_refuses_new_requests_and_finishes_running_ones() -> None:
    async with serving(stalling(after=3)) as served:
        running = asyncio.create_task(read_stream(served.http, COMPLETIONS, {"prompt": "Hi"}))
        await until(lambda: served.router.open == 1, 5)
        async with httpx.AsyncClient(base_url=served.url) as other:
            stopping = asyncio.create_task(served.gateway.stop(grace=1.0))
            await asyncio.sleep(0.05)
            refused = await other.post(COMPLETIONS, json={"prompt": "Hi"})
            ready = await other.get("/readyz")
            live = await other.get("/livez")
        assert (refused.status_code, ready.status_code, live.status_code) == (503, 503, 200)
        assert refused.json()["error"]["code"] == "unavailable"
        assert ready.json() == {"status": "draining"}
        assert {"retry-after"} <= refused.headers.keys() & ready.headers.keys()
        assert not stopping.done()
        events = await running
        await stopping
    assert events[-1]["error"]["message"] == "the server is shutting down"
    assert events[0]["choices"]


async def test_a_request_that_ends_in_time_is_not_disturbed_by_draining() -> None:
    proceed = asyncio.Event()

    async with serving() as served:
        speak = served.router.script

        async def slowly(request):  # type: ignore[no-untyped-def]
            await proceed.wait()
            async for event in speak(request):
                yield event

        served.router.script = slowly
        running = asyncio.create_task(served.post(COMPLETIONS, prompt="Hi", max_tokens=40))
        await until(lambda: served.router.open == 1, 5)
        stopping = asyncio.create_task(served.gateway.stop(grace=10))
        await asyncio.sleep(0.05)
        proceed.set()
        assert (await running)["choices"][0]["text"] == answer(0)
        await asyncio.wait_for(stopping, 2)


@pytest.mark.parametrize("stream", [False, True])
async def test_what_draining_ends_by_force_gets_an_error(stream: bool) -> None:
    async with serving(stalling()) as served:
        asking = asyncio.create_task(served.http.post(COMPLETIONS, json={"prompt": "Hi", "stream": stream}))
        await until(lambda: served.router.open == 1, 5)
        await served.gateway.stop(grace=0)
        response = await asking
        assert response.status_code == 503
        assert response.json()["error"]["message"] == "the server is shutting down"
        await until(lambda: served.router.open == 0)


async def test_stop_is_idempotent_and_the_port_is_free_afterwards() -> None:
    async with serving() as served:
        await served.gateway.stop()
        await served.gateway.stop()
        await asyncio.wait_for(served.gateway.wait_closed(), 1)
        with pytest.raises(httpx.ConnectError):
            await served.http.get("/livez")


async def test_routers_are_used_in_turn() -> None:
    async with routing() as first, routing() as second:
        addresses = (f"127.0.0.1:{first.port}", f"127.0.0.1:{second.port}")
        async with serving(routers=addresses) as served:
            for _ in range(4):
                await served.post(COMPLETIONS, prompt="Hi")
        assert len(first.requests) == len(second.requests) == 2


async def test_a_router_that_is_away_is_passed_over() -> None:
    async with routing() as router, serving(routers=("127.0.0.1:9", f"127.0.0.1:{router.port}")) as served:
        for _ in range(4):
            assert (await served.post(COMPLETIONS, prompt="Hi"))["choices"]
            assert (await served.http.get("/v1/models")).status_code == 200


async def test_a_router_that_fails_after_it_began_is_not_passed_over() -> None:
    """A choice is never begun twice in one answer."""
    async with routing(failing(UnavailableError("gone"), after=2)) as broken, routing() as well:
        addresses = (f"127.0.0.1:{broken.port}", f"127.0.0.1:{well.port}")
        async with serving(routers=addresses) as served:
            response = await served.http.post(COMPLETIONS, json={"prompt": "Hi"})
        assert response.status_code == 503
        assert not well.requests


async def test_one_line_tells_how_a_request_ended(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serving() as served:
        await served.http.post(COMPLETIONS, json={"prompt": "Hi"}, headers={"X-Request-Id": "job-1"})
        await served.http.post(COMPLETIONS, json={"prompt": -1}, headers={"X-Request-Id": "job-2"})
        await served.http.get("/metrics")
    ended = [vars(record) for record in caplog.records if record.message == "request ended"]
    assert [(line["request_id"], line["status"], line["error"]) for line in ended] == [
        ("job-1", 200, None),
        ("job-2", 400, "invalid_request"),
    ]
    assert (ended[0]["prompt_tokens"], ended[0]["completion_tokens"]) == (2, 16)
