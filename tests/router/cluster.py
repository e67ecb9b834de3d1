"""A router with fake workers, and what must be true of both when nothing runs."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from halfmoon.errors import HalfmoonError
from halfmoon.rpc import error_from_rpc, open_channel
from halfmoon.v1 import common_pb2, router_pb2, router_pb2_grpc
from router import PolicySettings, RouterConfig, RouterProgram
from tests.router.fakes import FakeWorker, Script
from tests.router.tiny_text import tiny_text

ROLES = {
    "p": router_pb2.WORKER_ROLE_PREFILL,
    "d": router_pb2.WORKER_ROLE_DECODE,
    "b": router_pb2.WORKER_ROLE_BOTH,
}
LONG_PROMPT = "a prompt that is long enough to be worth splitting, as it has many tokens"
SHORT_PROMPT = "short"

_ZERO_AT_REST = (
    "halfmoon_router_requests_running",
    "halfmoon_router_requests_waiting",
    "halfmoon_router_requests_held",
    "halfmoon_router_calls_active",
    "halfmoon_router_streams_open",
    "halfmoon_router_background_tasks",
)


@dataclass
class Reply:
    """What came of one request: everything sent, and the error that ended it."""

    responses: list[router_pb2.GenerateResponse] = field(default_factory=list)
    error: HalfmoonError | None = None

    @property
    def prompt(self) -> router_pb2.PromptInfo:
        assert self.responses[0].HasField("prompt")
        return self.responses[0].prompt

    @property
    def usage(self) -> common_pb2.Usage:
        assert self.responses[-1].HasField("usage")
        return self.responses[-1].usage

    def deltas(self, choice: int = 0) -> list[router_pb2.ChoiceDelta]:
        found = [response.delta for response in self.responses if response.HasField("delta")]
        return [delta for delta in found if delta.index == choice]

    def text(self, choice: int = 0) -> str:
        return "".join(delta.text for delta in self.deltas(choice))

    def token_ids(self, choice: int = 0) -> list[int]:
        return [token_id for delta in self.deltas(choice) for token_id in delta.token_ids]

    def last(self, choice: int = 0) -> router_pb2.ChoiceDelta:
        return self.deltas(choice)[-1]


@dataclass
class Cluster:
    """A router, its workers by id, and a client."""

    program: RouterProgram
    script: Script
    channel: grpc.aio.Channel
    workers: dict[str, FakeWorker] = field(default_factory=dict)

    @property
    def stub(self) -> "router_pb2_grpc.RouterAsyncStub":
        return router_pb2_grpc.RouterStub(self.channel)

    @property
    def registry(self) -> "router_pb2_grpc.WorkerRegistryAsyncStub":
        return router_pb2_grpc.WorkerRegistryStub(self.channel)

    async def add(self, *worker_ids: str) -> None:
        """Starts workers whose ids begin with their role, and waits until the router knows them."""
        for worker_id in worker_ids:
            worker = FakeWorker(worker_id, ROLES[worker_id[0]], self.script, f"127.0.0.1:{self.program.port}")
            await worker.start()
            self.workers[worker_id] = worker
        await until(lambda: all(self.workers[worker_id].agent.registered for worker_id in worker_ids))

    async def known(self, count: int) -> None:
        """Waits, for 20 seconds at most, until the router knows this many workers."""
        for _ in range(2000):
            if len((await self.registry.ListWorkers(router_pb2.ListWorkersRequest())).workers) == count:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"the router does not know {count} workers")

    def call(
        self, prompt: str = LONG_PROMPT, *, seconds: float = 10, request_id: str = "", **sampling: Any
    ) -> "grpc.aio.UnaryStreamCall[router_pb2.GenerateRequest, router_pb2.GenerateResponse]":
        """Begins a request."""
        params = common_pb2.SamplingParams(**sampling)
        request = router_pb2.GenerateRequest(request_id=request_id, text=prompt, sampling=params)
        return self.stub.Generate(request, timeout=seconds)

    async def ask(self, prompt: str = LONG_PROMPT, *, seconds: float = 10, **sampling: Any) -> Reply:
        """One request from beginning to end."""
        return await self.send(self.call(prompt, seconds=seconds, **sampling))

    async def send(
        self, call: "grpc.aio.UnaryStreamCall[router_pb2.GenerateRequest, router_pb2.GenerateResponse]"
    ) -> Reply:
        """What comes of a request that was begun."""
        reply = Reply()
        try:
            while (response := await call.read()) is not grpc.aio.EOF:
                assert isinstance(response, router_pb2.GenerateResponse)
                reply.responses.append(response)
        except grpc.aio.AioRpcError as error:
            reply.error = error_from_rpc(error)
        return reply

    def metric(self, line_start: str) -> float:
        """The value of a metric, given with its labels; 0 where it was never counted."""
        lines = self.program.metrics.render().decode().splitlines()
        return next((float(line.split()[-1]) for line in lines if line.startswith(f"{line_start} ")), 0.0)

    async def at_rest(self) -> None:
        """Waits, for a second at most, until nothing of any request is left anywhere."""
        await until(lambda: not self.leftovers(), self.leftovers)

    def leftovers(self) -> dict[str, float]:
        """What is not zero though nothing should run."""
        counts = {name: self.metric(name) for name in _ZERO_AT_REST}
        for worker in self.workers.values():
            counts[f"{worker.worker_id} active"] = worker.active
            counts[f"{worker.worker_id} handles"] = len(worker.handles)
        return {name: count for name, count in counts.items() if count}


@asynccontextmanager
async def running(
    *worker_ids: str, script: Script | None = None, threshold: int = 32, queue: int = 1024
) -> AsyncIterator[Cluster]:
    """A router with workers; at the end nothing may be left at the router or at workers that live."""
    config = RouterConfig(
        Path("tiny"),
        heartbeat=0.05,
        dead_after=1.0,
        queue=queue,
        policy=PolicySettings(split_threshold=threshold),
    )
    program = RouterProgram(config, tiny_text())
    await program.start()
    channel = open_channel(f"127.0.0.1:{program.port}")
    cluster = Cluster(program, script or Script(), channel)
    try:
        await cluster.add(*worker_ids)
        yield cluster
        await cluster.at_rest()
    finally:
        await channel.close()
        for worker in cluster.workers.values():
            await worker.stop()
        await cluster.program.stop(0.5)


async def until(condition: Callable[[], object], found: Callable[[], object] = lambda: "waited for too long") -> None:
    """Waits, for two seconds at most, until `condition()` holds; `found()` says what is there when it does not."""
    deadline = time.monotonic() + 2.0
    while not condition():
        assert time.monotonic() < deadline, found()
        await asyncio.sleep(0.005)
