"""The agent that keeps a worker registered, against registries that behave as a test tells them."""

# ruff: noqa: N802 - methods are named by the protos

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from halfmoon.errors import IncompatibleError, UnavailableError, UnknownWorkerError
from halfmoon.rpc import GrpcServer, RegistrationAgent, WorkerReport
from halfmoon.v1 import router_pb2, router_pb2_grpc

READY, STOPPED = router_pb2.WORKER_STATE_READY, router_pb2.WORKER_STATE_STOPPED
DRAINING = router_pb2.WORKER_STATE_DRAINING
BEAT = 0.05


class Registry(router_pb2_grpc.WorkerRegistryServicer):
    """Keeps what it is told; `cache` is the worker's as the deltas make it."""

    def __init__(self, port: int = 0) -> None:
        self.registrations: list[router_pb2.WorkerInfo] = []
        self.heartbeats: list[router_pb2.HeartbeatRequest] = []
        self.cache: set[bytes] = set()
        self.known = False
        self.refuses = False
        self.hangs = False
        self.wants_snapshot = False
        self._server = GrpcServer(port=port)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.port}"

    @property
    def port(self) -> int:
        return self._server.port

    async def start(self) -> None:
        self._server.add(router_pb2_grpc.add_WorkerRegistryServicer_to_server, self, "halfmoon.v1.WorkerRegistry")
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop()

    async def Register(self, request: router_pb2.RegisterRequest, context: object) -> router_pb2.RegisterResponse:
        if self.refuses:
            raise IncompatibleError("another model")
        self.registrations.append(request.worker)
        self.known = True
        return router_pb2.RegisterResponse(heartbeat_ms=round(BEAT * 1000))

    async def Heartbeat(self, request: router_pb2.HeartbeatRequest, context: object) -> router_pb2.HeartbeatResponse:
        if self.hangs:
            await asyncio.sleep(60)
        if not self.known:
            raise UnknownWorkerError("who?")
        self.heartbeats.append(request)
        if request.cache.snapshot:
            self.cache = set()
        self.cache = (self.cache - set(request.cache.removed)) | set(request.cache.stored)
        wanted, self.wants_snapshot = self.wants_snapshot, False
        return router_pb2.HeartbeatResponse(send_snapshot=wanted)

    async def ListWorkers(
        self, request: router_pb2.ListWorkersRequest, context: object
    ) -> router_pb2.ListWorkersResponse:
        return router_pb2.ListWorkersResponse()


class Worker:
    """What the agent reports."""

    def __init__(self) -> None:
        self.state = READY
        self.changes: dict[bytes, bool] = {}
        self.broken = False

    def report(self) -> WorkerReport:
        if self.broken:
            raise KeyError("broken report")
        changes, self.changes = self.changes, {}
        stored = [page for page, cached in changes.items() if cached]
        removed = [page for page, cached in changes.items() if not cached]
        return WorkerReport(self.state, router_pb2.WorkerLoad(requests_running=7), stored, removed)


@asynccontextmanager
async def registered(*registries: Registry, worker: Worker | None = None) -> AsyncIterator[RegistrationAgent]:
    for registry in registries:
        await registry.start()
    info = router_pb2.WorkerInfo(worker_id="w", incarnation=5, address="here:1")
    agent = RegistrationAgent(
        [registry.address for registry in registries], info, (worker or Worker()).report, interval=BEAT
    )
    agent.start()
    try:
        yield agent
    finally:
        await agent.close()
        for registry in registries:
            await registry.stop()


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 3
    while not condition():
        assert time.monotonic() < deadline, "waited for too long"
        await asyncio.sleep(0.005)


async def test_a_worker_registers_and_reports_state_and_load() -> None:
    registry = Registry()
    async with registered(registry) as agent:
        await until(lambda: len(registry.heartbeats) >= 2)
        assert agent.registered == 1
        assert agent.refusals == {}
    (info,) = registry.registrations
    assert (info.worker_id, info.incarnation, info.state) == ("w", 5, READY)
    assert registry.heartbeats[0].state == READY
    assert registry.heartbeats[0].load.requests_running == 7


async def test_closing_says_stopped() -> None:
    registry = Registry()
    async with registered(registry):
        await until(lambda: registry.heartbeats)
    assert registry.heartbeats[-1].state == STOPPED


async def test_a_worker_that_reports_its_end_and_closes_at_once_does_end() -> None:
    registry = Registry()
    async with registered(registry) as agent:
        await until(lambda: registry.heartbeats)
        agent.wake()
        async with asyncio.timeout(2):
            await agent.close()
    assert registry.heartbeats[-1].state == STOPPED


async def test_a_router_that_forgot_the_worker_gets_it_anew_with_its_cache() -> None:
    registry, worker = Registry(), Worker()
    worker.changes = {b"a": True, b"b": True}
    async with registered(registry, worker=worker):
        await until(lambda: registry.cache == {b"a", b"b"})
        registry.known, registry.cache = False, set()
        await until(lambda: len(registry.registrations) == 2 and registry.cache == {b"a", b"b"})


async def test_a_router_that_restarts_knows_the_worker_again_soon() -> None:
    first, worker = Registry(), Worker()
    worker.changes = {b"a": True}
    async with registered(first, worker=worker) as agent:
        await until(lambda: first.cache)
        port = first.port
        await first.stop()
        await until(lambda: agent.refusals)
        assert isinstance(next(iter(agent.refusals.values())), UnavailableError)
        second = Registry(port)
        await second.start()
        try:
            begin = time.monotonic()
            await until(lambda: second.cache == {b"a"} and agent.refusals == {})
            assert time.monotonic() - begin < 2
        finally:
            await second.stop()


@pytest.mark.parametrize(("state", "lines"), [(READY, 1), (DRAINING, 0)])
async def test_a_router_that_went_is_news_unless_the_worker_goes_too(
    caplog: pytest.LogCaptureFixture, state: "router_pb2.WorkerState.ValueType", lines: int
) -> None:
    registry, worker = Registry(), Worker()
    async with registered(registry, worker=worker) as agent:
        worker.state = state
        await until(lambda: registry.heartbeats and registry.heartbeats[-1].state == state)
        await registry.stop()
        await until(lambda: agent.refusals)
    assert sum("does not answer" in record.message for record in caplog.records) == lines


async def test_a_router_that_hangs_delays_no_other() -> None:
    slow, fast = Registry(), Registry()
    slow.hangs = True
    async with registered(slow, fast):
        await until(lambda: len(fast.heartbeats) >= 5)


async def test_several_routers_each_learn_every_change() -> None:
    registries, worker = [Registry(), Registry(), Registry()], Worker()
    async with registered(*registries, worker=worker):
        for step in range(20):
            worker.changes[b"%d" % step] = True
            worker.changes[b"%d" % (step - 3)] = False
            await asyncio.sleep(0.01)
        await until(lambda: all(registry.cache == {b"17", b"18", b"19"} for registry in registries))
        sequences = [[beat.cache.sequence for beat in registry.heartbeats] for registry in registries]
        assert all(seen == list(range(1, len(seen) + 1)) for seen in sequences)
        assert all(sum(beat.cache.snapshot for beat in registry.heartbeats) == 1 for registry in registries)


async def test_a_snapshot_is_sent_when_asked_for() -> None:
    registry, worker = Registry(), Worker()
    worker.changes = {b"a": True, b"b": True}
    async with registered(registry, worker=worker):
        await until(lambda: len(registry.heartbeats) >= 2)
        registry.cache, registry.wants_snapshot = set(), True
        await until(lambda: registry.cache == {b"a", b"b"})


async def test_a_change_of_state_is_reported_at_once() -> None:
    registry, worker = Registry(), Worker()
    async with registered(registry, worker=worker) as agent:
        await until(lambda: registry.heartbeats)
        worker.state = router_pb2.WORKER_STATE_DRAINING
        agent.wake()
        begin = time.monotonic()
        await until(lambda: registry.heartbeats[-1].state == router_pb2.WORKER_STATE_DRAINING)
        assert time.monotonic() - begin < BEAT


async def test_a_refusal_is_told_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    registry = Registry()
    registry.refuses = True
    async with registered(registry) as agent:
        await until(lambda: agent.refusals)
        await asyncio.sleep(5 * BEAT)
        assert isinstance(agent.refusals[registry.address], IncompatibleError)
        assert [record.getMessage() for record in caplog.records].count(
            "router does not answer to this worker: another model"
        ) == 1
        registry.refuses = False
        await until(lambda: agent.registered)


async def test_a_report_that_fails_once_does_not_end_the_registration() -> None:
    registry, worker = Registry(), Worker()
    async with registered(registry, worker=worker):
        await until(lambda: registry.heartbeats)
        worker.broken = True
        await asyncio.sleep(2 * BEAT)
        worker.broken = False
        seen = len(registry.heartbeats)
        await until(lambda: len(registry.heartbeats) > seen)


async def test_closing_does_not_wait_for_a_router_that_hangs() -> None:
    registry = Registry()
    async with registered(registry) as agent:
        await until(lambda: registry.heartbeats)
        registry.hangs = True
        begin = time.monotonic()
        await agent.close()
        assert time.monotonic() - begin < 1.5
