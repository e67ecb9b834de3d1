"""The gateway under the event loop that it has in production."""

import asyncio

import httpx
import uvloop

from gateway import GatewayConfig, run_gateway
from tests.gateway.fakes import routing
from tests.gateway.speaker import answer
from tests.gateway.streams import COMPLETIONS, read_stream


def test_it_runs_on_uvloop_until_told_to_stop() -> None:
    async def scenario() -> None:
        stopping = asyncio.Event()
        async with routing() as router:
            port = await _free_port()
            config = GatewayConfig(routers=(f"127.0.0.1:{router.port}",), port=port, drain_seconds=0.5)
            serving_task = asyncio.create_task(run_gateway(config, stopping=stopping))
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
                await _until_live(http)
                body = {"prompt": "Hi", "max_tokens": 40, "n": 2}
                whole = (await http.post(COMPLETIONS, json=body)).json()
                chunks = await read_stream(http, COMPLETIONS, body)
            stopping.set()
            await asyncio.wait_for(serving_task, 5)
        assert [choice["text"] for choice in whole["choices"]] == [answer(0), answer(1)]
        assert chunks

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())


async def _free_port() -> int:
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as server:
        return int(server.sockets[0].getsockname()[1])


async def _until_live(http: httpx.AsyncClient) -> None:
    async with asyncio.timeout(5):
        while True:
            try:
                await http.get("/livez")
            except httpx.ConnectError:
                await asyncio.sleep(0.02)
            else:
                return
