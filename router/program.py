"""The router as a program: what is started, in which order, and stopped in the reverse."""

import asyncio
import logging
import time
from contextlib import suppress

from halfmoon.config import DEADLINES
from halfmoon.errors import ConfigError
from halfmoon.rpc import GrpcServer
from halfmoon.telemetry import Metrics, MetricsServer, serve_metrics
from halfmoon.text import TextModel, load_text_model
from halfmoon.v1 import router_pb2_grpc
from router.config import RouterConfig
from router.dispatcher import Dispatcher
from router.fleet import STOPPED, Fleet
from router.links import Links
from router.metrics import RouterMetrics
from router.registry import RegistryService
from router.service import RouterService
from router.tasks import BackgroundTasks
from router.worker import Worker

_log = logging.getLogger(__name__)


class RouterProgram:
    """One router. `start` and `stop` once, in one event loop. `text` spares loading the model's text side again."""

    def __init__(self, config: RouterConfig, text: TextModel | None = None) -> None:
        self.config = config
        self.metrics = Metrics("router")
        self._text = text
        self._tasks = BackgroundTasks()
        self._links = Links(self._tasks)
        self._server: GrpcServer | None = None
        self._metrics_server: MetricsServer | None = None
        self._dispatcher: Dispatcher | None = None
        self._watch: asyncio.Task[None] | None = None
        self._draining = False

    @property
    def port(self) -> int:
        """The bound gRPC port; known once started."""
        if self._server is None:
            raise RuntimeError("the router is not started")
        return self._server.port

    @property
    def draining(self) -> bool:
        """Whether new requests are refused because the router stops."""
        return self._draining

    @property
    def metrics_port(self) -> int | None:
        """The bound port of `/metrics`, if it is served."""
        return self._metrics_server.port if self._metrics_server else None

    async def start(self) -> None:
        """Loads the model's text side and serves. Raises ModelError or ConfigError in one line that says what to do."""
        config = self.config
        text = self._text if self._text is not None else await asyncio.to_thread(load_text_model, config.model_path)
        if config.max_model_len is not None and config.max_model_len > text.max_model_len:
            raise ConfigError(
                f"max_model_len is {config.max_model_len}, the model's context has {text.max_model_len} tokens"
            )
        metrics = RouterMetrics(self.metrics)
        fleet = Fleet(text.fingerprint, dead_after=config.dead_after, on_drop=self._dropped)
        self._dispatcher = Dispatcher(config, text, fleet=fleet, links=self._links, tasks=self._tasks, metrics=metrics)
        self._server = GrpcServer(config.host, config.port)
        self._add_services(self._server, self._dispatcher, text, fleet)
        self._add_gauges(metrics, fleet, self._server, self._dispatcher)
        await self._server.start()
        if config.metrics_port is not None:
            self._metrics_server = serve_metrics(self.metrics, config.host, config.metrics_port)
        self._watch = asyncio.create_task(_expire(fleet, config.heartbeat / 2), name="expire workers")
        await self._server.set_serving(True)
        _log.info("ready", extra={"port": self.port, "model": config.model_name})

    async def stop(self, grace: float = DEADLINES.drain) -> None:
        """Takes no new requests, waits up to `grace` seconds for those under way, ends the rest. Idempotent."""
        if self._dispatcher is None or self._server is None:
            return
        dispatcher, self._dispatcher = self._dispatcher, None
        dispatcher.draining = self._draining = True
        await self._server.stop(grace)
        if self._watch is not None:
            self._watch.cancel()
            with suppress(asyncio.CancelledError):
                await self._watch
        await self._tasks.close()
        await self._links.close()
        dispatcher.preparation.close()
        if self._metrics_server is not None:
            await asyncio.to_thread(self._metrics_server.close)
        self.metrics.close()
        _log.info("stopped")

    def _add_services(self, server: GrpcServer, dispatcher: Dispatcher, text: TextModel, fleet: Fleet) -> None:
        server.add(
            router_pb2_grpc.add_RouterServicer_to_server,
            RouterService(dispatcher, text, fleet, self.config.model_name),
            "halfmoon.v1.Router",
        )
        server.add(
            router_pb2_grpc.add_WorkerRegistryServicer_to_server,
            RegistryService(fleet, self.config.heartbeat),
            "halfmoon.v1.WorkerRegistry",
        )

    def _add_gauges(self, metrics: RouterMetrics, fleet: Fleet, server: GrpcServer, dispatcher: Dispatcher) -> None:
        metrics.watch_fleet(fleet)
        metrics.watch("halfmoon_router_requests_held", "Requests held.", lambda: len(dispatcher))
        metrics.watch("halfmoon_router_calls_active", "Calls to this router under way.", lambda: server.active_calls)
        metrics.watch("halfmoon_router_streams_open", "Streams from workers.", lambda: self._links.open_streams)
        metrics.watch("halfmoon_router_background_tasks", "Releases and the like under way.", lambda: len(self._tasks))

    def _dropped(self, worker: Worker, reason: str) -> None:
        level = logging.INFO if reason == STOPPED else logging.WARNING
        _log.log(level, "worker gone", extra={"worker": worker.worker_id, "why": reason})
        self._links.drop(worker, reason)


async def run_router(config: RouterConfig, stop: asyncio.Event, *, grace: float = DEADLINES.drain) -> None:
    """Serves until `stop` is set, then drains for up to `grace` seconds."""
    program = RouterProgram(config)
    try:
        await program.start()
        await stop.wait()
    finally:
        await program.stop(grace)


async def _expire(fleet: Fleet, interval: float) -> None:
    """A router that was held up itself has heartbeats yet to read: that time counts against no worker."""
    due = time.monotonic()
    while True:
        now = time.monotonic()
        fleet.expire(min(now, due))
        due = now + interval
        await asyncio.sleep(interval)
