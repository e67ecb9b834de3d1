"""An OpenAI server over real HTTP that answers with known delays, on a thread of its own."""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

MODEL = "fake-moon"
VOCAB = 1000


@dataclass
class Behaviour:
    """How it answers; times in seconds. `refuse` names fields that it answers with HTTP 400."""

    first: float = 0.0
    gap: float = 0.0
    tokens_per_chunk: int = 1
    token_ids: bool = True
    usage: bool = True
    stop_after: int | None = None
    refuse: tuple[str, ...] = ()
    fail_every: int | None = None
    cut_after: int | None = None
    api_key: str | None = None


@dataclass
class FakeServer:
    """What it has seen: bodies in their order, how many were in work at once at most, and, by its own clock, when each
    answered request came and when each chunk of its answer left."""

    behaviour: Behaviour
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    most_at_once: int = 0
    times: list[list[float]] = field(default_factory=list)
    _at_once: int = 0

    async def models(self, request: web.Request) -> web.Response:
        """`/v1/models`."""
        if self.behaviour.api_key and request.headers.get("Authorization") != f"Bearer {self.behaviour.api_key}":
            return _error(401, "wrong key")
        facts = {"id": MODEL, "vocab_size": VOCAB, "max_model_len": 4096, "fingerprint": "f00d"}
        return web.json_response({"object": "list", "data": [facts]})

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """`/v1/completions`."""
        times = [time.perf_counter()]
        body = await request.json()
        self.bodies.append(body)
        for name in self.behaviour.refuse:
            if name in body:
                return _error(400, f"unknown field {name}")
        if self.behaviour.fail_every and len(self.bodies) % self.behaviour.fail_every == 0:
            return _error(503, "too busy")
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            return await self._stream(request, body, times)
        finally:
            self._at_once -= 1

    async def _stream(self, request: web.Request, body: dict[str, Any], times: list[float]) -> web.StreamResponse:
        behaviour = self.behaviour
        self.times.append(times)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        total = min(body["max_tokens"], behaviour.stop_after or body["max_tokens"])
        await asyncio.sleep(behaviour.first)
        for index, start in enumerate(range(0, total, behaviour.tokens_per_chunk)):
            if index:
                await asyncio.sleep(behaviour.gap)
            if behaviour.cut_after == index:
                return response
            ids = list(range(start, min(start + behaviour.tokens_per_chunk, total)))
            times.append(time.perf_counter())
            await _send(response, {"choices": [self._choice(ids, body, last=ids[-1] == total - 1)]})
        if behaviour.usage and body["stream_options"]["include_usage"]:
            prompt = len(body["prompt"]) if isinstance(body["prompt"], list) else len(body["prompt"].split())
            await _send(response, {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": total}})
        await response.write(b"data: [DONE]\n\n")
        return response

    def _choice(self, ids: list[int], body: dict[str, Any], *, last: bool) -> dict[str, Any]:
        choice = {"index": 0, "text": "a" * len(ids), "finish_reason": "length" if last else None}
        if self.behaviour.token_ids and body.get("return_token_ids"):
            choice["token_ids"] = ids
        return choice


@contextmanager
def serving(behaviour: Behaviour, *, port: int = 0) -> Iterator[FakeServer]:
    """A server on a port of this machine, 0 for a free one, until the block ends."""
    fake = FakeServer(behaviour)
    ready: queue.Queue[Callable[[], object]] = queue.Queue()
    thread = threading.Thread(target=lambda: asyncio.run(_serve(fake, port, ready)))
    thread.start()
    stop = ready.get(timeout=10)
    try:
        yield fake
    finally:
        stop()
        thread.join(10)


async def _serve(fake: FakeServer, port: int, ready: "queue.Queue[Callable[[], object]]") -> None:
    """Serves until what it puts into `ready` is called."""
    app = web.Application()
    app.add_routes([web.get("/v1/models", fake.models), web.post("/v1/completions", fake.complete)])
    runner = web.AppRunner(app, shutdown_timeout=1.0, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    host, bound = runner.addresses[0]
    fake.url = f"http://{host}:{bound}"
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    ready.put(lambda: loop.call_soon_threadsafe(stopping.set))
    await stopping.wait()
    await runner.cleanup()


async def _send(response: web.StreamResponse, chunk: dict[str, Any]) -> None:
    await response.write(b"data: " + msgspec.json.encode(chunk) + b"\n\n")


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status)
