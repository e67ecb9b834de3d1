"""Keeps a worker registered at its routers: registration, heartbeats, prefix-cache changes, and the last word."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import grpc

from halfmoon.config import DEADLINES
from halfmoon.errors import HalfmoonError, UnavailableError, UnknownWorkerError
from halfmoon.rpc.cachefeed import CacheFeed, FeedCursor
from halfmoon.rpc.channel import open_channel
from halfmoon.rpc.status import error_from_rpc
from halfmoon.v1 import router_pb2, router_pb2_grpc

_log = logging.getLogger(__name__)

_STOPPED_DEADLINE = 1.0
"""Seconds that saying good-bye may take."""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """What a worker tells: state and load now, and content hashes stored and removed since the report before.

    A hash both removed and stored since then is listed as its final state alone, or removed first and stored after.
    """

    state: "router_pb2.WorkerState.ValueType"
    load: router_pb2.WorkerLoad
    stored: Sequence[bytes] = field(default_factory=tuple)
    removed: Sequence[bytes] = field(default_factory=tuple)


class RegistrationAgent:
    """Registers one worker at every router and reports until closed; a router that is away delays no other.

    `info` describes the worker (its state comes from the reports). `report` is called on the event loop, must not
    block, and returns each cache change once; the agent keeps what every router has still to learn.
    """

    def __init__(
        self,
        routers: Sequence[str],
        info: router_pb2.WorkerInfo,
        report: Callable[[], WorkerReport],
        *,
        interval: float = DEADLINES.heartbeat,
    ) -> None:
        self._info = info
        self._report = report
        self.leaving = False
        """The worker drains: routers that are gone already are no news."""
        self._feed = CacheFeed()
        self._links = [_RouterLink(address, self._feed.cursor(), self, interval) for address in routers]
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def registered(self) -> int:
        """Routers that know this worker, as of the last answer."""
        return sum(link.registered for link in self._links)

    @property
    def refusals(self) -> dict[str, HalfmoonError]:
        """Why a router does not take this worker, by the router's address: unreachable, or refused with the reason."""
        return {link.address: link.failure for link in self._links if link.failure is not None}

    def start(self) -> None:
        """Begins to register and report; returns at once."""
        self._tasks = [asyncio.create_task(link.run(), name=f"registration {link.address}") for link in self._links]

    def wake(self) -> None:
        """Reports now rather than at the next beat: the state has changed."""
        for link in self._links:
            link.wake()

    async def close(self) -> None:
        """Stops reporting and tells every router STOPPED, bounded by a second. Idempotent."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if tasks:
            await asyncio.gather(*(link.close() for link in self._links))

    def registration(self) -> router_pb2.RegisterRequest:
        """The worker as it is now."""
        request = router_pb2.RegisterRequest(worker=self._info)
        request.worker.state = self.collect().state
        return request

    def heartbeat(self, cursor: FeedCursor) -> router_pb2.HeartbeatRequest:
        """The next heartbeat for the router that reads at `cursor`."""
        report = self.collect()
        return router_pb2.HeartbeatRequest(
            worker_id=self._info.worker_id,
            incarnation=self._info.incarnation,
            state=report.state,
            load=report.load,
            cache=cursor.delta(),
        )

    def farewell(self) -> router_pb2.HeartbeatRequest:
        """The last heartbeat."""
        return router_pb2.HeartbeatRequest(
            worker_id=self._info.worker_id,
            incarnation=self._info.incarnation,
            state=router_pb2.WORKER_STATE_STOPPED,
        )

    def collect(self) -> WorkerReport:
        """Asks the worker, and keeps its cache changes for all routers."""
        report = self._report()
        self.leaving = report.state == router_pb2.WORKER_STATE_DRAINING
        self._feed.apply(report.stored, report.removed)
        return report


class _RouterLink:
    """One router: its channel, whether it knows the worker, and what it has been told."""

    def __init__(self, address: str, cursor: FeedCursor, agent: RegistrationAgent, interval: float) -> None:
        self.address = address
        self.registered = False
        self.failure: HalfmoonError | None = None
        self._cursor = cursor
        self._agent = agent
        self._interval = interval
        self._woken = asyncio.Event()
        self._channel: grpc.aio.Channel | None = None

    def wake(self) -> None:
        self._woken.set()

    async def run(self) -> None:
        """Beats until cancelled."""
        self._channel = open_channel(self.address)
        stub = router_pb2_grpc.WorkerRegistryStub(self._channel)
        while True:
            self._woken.clear()
            try:
                await self._beat(stub)
            except grpc.aio.AioRpcError as error:
                self._failed(error_from_rpc(error))
            except Exception:  # noqa: BLE001 - a report that fails once must not take the worker out of the fleet for good
                _log.exception("cannot report", extra={"router": self.address})
            # wait_for would lose a cancellation that comes together with a wake-up.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await self._woken.wait()

    async def close(self) -> None:
        if self._channel is None:
            return
        if self.registered:
            self.registered = False
            stub = router_pb2_grpc.WorkerRegistryStub(self._channel)
            with suppress(grpc.aio.AioRpcError):
                await stub.Heartbeat(self._agent.farewell(), timeout=_STOPPED_DEADLINE)
        await self._channel.close()
        self._channel = None

    async def _beat(self, stub: "router_pb2_grpc.WorkerRegistryAsyncStub") -> None:
        if self.registered:
            try:
                return await self._heartbeat(stub)
            except grpc.aio.AioRpcError as error:
                if not isinstance(error_from_rpc(error), UnknownWorkerError):
                    raise
        await self._register(stub)
        return await self._heartbeat(stub)

    async def _register(self, stub: "router_pb2_grpc.WorkerRegistryAsyncStub") -> None:
        self.registered = False
        answer = await stub.Register(self._agent.registration(), timeout=DEADLINES.control)
        self.registered = True
        self._interval = answer.heartbeat_ms / 1000 if answer.heartbeat_ms else self._interval
        self._cursor.reset()
        _log.info("registered", extra={"router": self.address})

    async def _heartbeat(self, stub: "router_pb2_grpc.WorkerRegistryAsyncStub") -> None:
        response = await stub.Heartbeat(self._agent.heartbeat(self._cursor), timeout=DEADLINES.control)
        self.failure = None
        if response.send_snapshot:
            self._cursor.reset()
            self.wake()

    def _failed(self, error: HalfmoonError) -> None:
        """The router may or may not have taken the heartbeat: it gets everything anew."""
        self._cursor.reset()
        if not self._agent.leaving and (self.failure is None or self.failure.reason != error.reason):
            level = logging.WARNING if isinstance(error, UnavailableError) else logging.ERROR
            _log.log(level, "router does not answer to this worker: %s", error.message, extra={"router": self.address})
        self.failure = error
