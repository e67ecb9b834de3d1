"""A scripted router, and a gateway in front of it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from gateway import GatewayConfig, GatewayProgram
from halfmoon.errors import HalfmoonError, ModelNotFoundError
from halfmoon.rpc import GrpcServer
from halfmoon.v1 import router_pb2 as pb
from halfmoon.v1 import router_pb2_grpc
from tests.gateway.speaker import speak

MODEL = "moon"

Script = Callable[[pb.GenerateRequest], AsyncIterator[pb.GenerateResponse]]


@dataclass
class FakeRouter(router_pb2_grpc.RouterServicer):
    """Answers with `script`; keeps what it was asked and which calls were cancelled."""

    script: Script = speak
    ready: bool = True
    requests: list[pb.GenerateRequest] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    open: int = 0
    most_open: int = 0
    port: int = 0

    async def Generate(  # noqa: N802
        self, request: pb.GenerateRequest, context: object
    ) -> AsyncIterator[pb.GenerateResponse]:
        self.requests.append(request)
        if request.model not in ("", MODEL):
            raise ModelNotFoundError(f"the model {request.model!r} is not served here", param="model")
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            async for event in self.script(request):
                yield event
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled.append(request.request_id)
            raise
        finally:
            self.open -= 1

    async def Tokenize(  # noqa: N802
        self, request: pb.TokenizeRequest, context: object
    ) -> pb.TokenizeResponse:
        text = request.text or "|".join(message.content for message in request.chat.messages)
        begin = [] if request.no_special_tokens else [1]
        return pb.TokenizeResponse(token_ids=[*begin, *text.encode()], max_model_len=128)

    async def Detokenize(  # noqa: N802
        self, request: pb.DetokenizeRequest, context: object
    ) -> pb.DetokenizeResponse:
        return pb.DetokenizeResponse(text=bytes(request.token_ids).decode())

    async def ListModels(  # noqa: N802
        self, request: pb.ListModelsRequest, context: object
    ) -> pb.ListModelsResponse:
        model = pb.ModelInfo(
            name=MODEL,
            max_model_len=128,
            created=1_700_000_000,
            ready=self.ready,
            fingerprint="f00d",
            vocab_size=300,
        )
        return pb.ListModelsResponse(models=[model])


@dataclass
class Served:
    """A gateway that serves, its router, and a client for it."""

    gateway: GatewayProgram
    router: FakeRouter
    http: httpx.AsyncClient

    @property
    def url(self) -> str:
        """Where the gateway listens."""
        return f"http://127.0.0.1:{self.gateway.port}"

    async def post(self, path: str, **body: Any) -> dict[str, Any]:
        """The answer to a request that must succeed."""
        response = await self.http.post(path, json=body)
        assert response.status_code == 200, response.text
        result: dict[str, Any] = response.json()
        return result

    async def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        lines = (await self.http.get("/metrics")).text.splitlines()
        values = [line.rpartition(" ")[2] for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(map(float, values))


@asynccontextmanager
async def routing(script: Script = speak) -> AsyncIterator[FakeRouter]:
    """A scripted router on a gRPC server of its own."""
    router = FakeRouter(script)
    server = GrpcServer()
    server.add(router_pb2_grpc.add_RouterServicer_to_server, router, "halfmoon.v1.Router")
    await server.start()
    router.port = server.port
    try:
        yield router
    finally:
        await server.stop()


@asynccontextmanager
async def serving(script: Script = speak, **config: Any) -> AsyncIterator[Served]:
    """A gateway in front of a scripted router."""
    async with routing(script) as router:
        routers = config.pop("routers", (f"127.0.0.1:{router.port}",))
        gateway = GatewayProgram(GatewayConfig(**{"routers": routers, "port": 0, "drain_seconds": 0.2, **config}))
        await gateway.start()
        url = f"http://127.0.0.1:{gateway.port}"
        try:
            async with httpx.AsyncClient(base_url=url, timeout=20) as http:
                yield Served(gateway, router, http)
        finally:
            await gateway.stop()


def failing(error: HalfmoonError, *, after: int = 0) -> Script:
    """A script that fails with `error` after some events of the usual ones."""

    async def script(request: pb.GenerateRequest) -> AsyncIterator[pb.GenerateResponse]:
        seen = 0
        async for event in speak(request):
            if seen == after:
                break
            seen += 1
            yield event
        raise error

    return script


def stalling(*, after: int = 0) -> Script:
    """A script that says nothing more after some events of the usual ones, until it is cancelled."""

    async def script(request: pb.GenerateRequest) -> AsyncIterator[pb.GenerateResponse]:
        seen = 0
        async for event in speak(request):
            if seen == after:
                break
            seen += 1
            yield event
        await asyncio.Event().wait()

    return script


async def until(condition: Callable[[], bool], seconds: float = 1.0) -> None:
    """Waits for something to become true; fails when it does not within `seconds`."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
