"""A prefill or decode worker as a program: the engine with its gRPC services, beside its data plane."""

import asyncio
import logging
import secrets
import socket
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from cli.advertised import advertised_host
from cli.ending import end_over
from cli.loop import run_until_signal
from cli.store_flags import StoreFlags
from cli.worker_devices import host_transports, open_devices
from cli.worker_engine import LoadedEngine, load_engine
from cli.worker_health import until_stopped
from cli.worker_metrics import PlaneWatch, watch_engine, watch_store
from decode import DecodeServicer
from halfmoon.config import DEADLINES, PAGE_SIZE
from halfmoon.engine.engine import ENGINE_THREAD
from halfmoon.errors import HalfmoonError
from halfmoon.rpc import GrpcServer, RegistrationAgent, WorkerReport
from halfmoon.telemetry import Metrics, TelemetrySettings, serve_metrics
from halfmoon.tier import Gate, TierParts, WorkerState, post_to
from halfmoon.v1 import decode_pb2_grpc, prefill_pb2_grpc, router_pb2
from halfmoon.wire import geometry_to_pb
from kvtransfer import DataPlane, PlaneSpec
from kvtransfer.device import DevicePlane
from kvtransfer.paging import PageStore, ReusablePages
from prefill import PrefillServicer

_log = logging.getLogger(__name__)

_ROLES = {
    "prefill": router_pb2.WORKER_ROLE_PREFILL,
    "decode": router_pb2.WORKER_ROLE_DECODE,
    "both": router_pb2.WORKER_ROLE_BOTH,
}
_STATES = {
    WorkerState.STARTING: router_pb2.WORKER_STATE_STARTING,
    WorkerState.READY: router_pb2.WORKER_STATE_READY,
    WorkerState.DRAINING: router_pb2.WORKER_STATE_DRAINING,
}
_REQUEST_LIMIT = 1024
_PULL_RESERVE = 8
"""Host blocks that a worker which both offers and pulls keeps for pulling."""


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """What a worker was asked for; sizes in bytes, None where it decides itself."""

    model: Path
    role: str
    routers: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 0
    worker_id: str | None = None
    dtype: str = "float32"
    max_model_len: int | None = None
    kv_memory: int | None = None
    host_kv_memory: int | None = None
    page_size: int = PAGE_SIZE
    metrics_port: int | None = None
    drain_seconds: float = DEADLINES.drain
    transports: tuple[str, ...] = ("shm", "tcp")
    kernels: str = "auto"
    store: StoreFlags = field(default_factory=StoreFlags)
    store_folder: Path | None = None
    served_model_name: str | None = None
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    core_share: tuple[int, int, Path] | None = None
    """(index, workers, file) of `halfmoon.cores`."""


def run_worker(config: WorkerConfig) -> int:
    """Serves until told to stop; returns the exit status, or ends the process with it while a step still runs."""
    failed = False

    async def run(stopping: asyncio.Event) -> None:
        nonlocal failed
        failed = not await Worker(config).run(stopping)

    status = run_until_signal(config.role, run, config.telemetry, name=config.worker_id)
    return end_over(ENGINE_THREAD, 1 if failed else status)


class Worker:
    """One worker, from loading to its end."""

    def __init__(self, config: WorkerConfig) -> None:
        self._config = config
        self._id = config.worker_id or f"{config.role}-{socket.gethostname()}-{secrets.token_hex(3)}"
        self._incarnation = secrets.randbits(64) | 1
        self._advertised = advertised_host(config.host, config.routers[0])
        self._metrics = Metrics(config.role)
        self._reusable = ReusablePages()
        if config.telemetry.metrics_names == "vllm":
            self._metrics.show_vllm_names(lambda: config.served_model_name or config.model.name)

    async def run(self, stopping: asyncio.Event) -> bool:
        """Loads, serves, drains. False when the engine failed or hangs, or the data plane died."""
        async with AsyncExitStack() as stack:
            self._serve_metrics(stack)
            loaded = await asyncio.to_thread(
                load_engine, self._config, post_to(asyncio.get_running_loop()), self._metrics
            )
            plane = await DataPlane.start(self._plane_spec(loaded))
            stack.push_async_callback(plane.close)
            healthy = await self._serve(stack, loaded, plane, stopping)
        _log.info("stopped", extra={"worker": self._id})
        return healthy

    def _serve_metrics(self, stack: AsyncExitStack) -> None:
        stack.callback(self._metrics.close)
        if self._config.metrics_port is not None:
            metrics_server = serve_metrics(self._metrics, self._config.host, self._config.metrics_port)
            stack.push_async_callback(asyncio.to_thread, metrics_server.close)

    async def _serve(
        self, stack: AsyncExitStack, loaded: LoadedEngine, plane: DataPlane, stopping: asyncio.Event
    ) -> bool:
        """From an engine and its data plane to the end of the drain; what is started here is stopped by `stack`."""
        config = self._config
        gate = Gate(worker_id=self._id, role=config.role, fingerprint=loaded.fingerprint, limit=_REQUEST_LIMIT)
        watch_engine(self._metrics, loaded.engine, gate)
        stack.push_async_callback(PlaneWatch(self._metrics, plane).close)
        loaded.engine.start()
        stack.push_async_callback(asyncio.to_thread, loaded.engine.stop, DEADLINES.control)
        store = self._open_store(stack, loaded, plane)
        server = GrpcServer(config.host, config.port)
        devices = await self._open_devices(stack, server, loaded)
        self._add_services(server, gate, loaded, plane, devices)
        await server.start()
        if devices is not None:
            devices.endpoint = f"{self._advertised}:{server.port}"
        stack.push_async_callback(server.stop)
        gate.state = WorkerState.READY
        await server.set_serving(True)
        info = self._info(loaded, server.port, plane.endpoint)
        agent = RegistrationAgent(config.routers, info, lambda: self._report(gate, loaded))
        stack.push_async_callback(agent.close)
        agent.start()
        _log.info("ready", extra={"worker": self._id, "port": server.port, "role": config.role})
        healthy = await until_stopped(stopping, loaded.engine, plane.died)
        gate.state = WorkerState.DRAINING
        agent.wake()
        if healthy:
            await _drain(server, plane, store if config.store.disk else None, config.drain_seconds)
        return healthy

    def _open_store(self, stack: AsyncExitStack, loaded: LoadedEngine, plane: DataPlane) -> PageStore | None:
        """Where pages outlast their time on the device; None where they shall not."""
        if not self._plane_spec(loaded).store_blocks:
            return None
        shared = bool(self._config.store.cluster)
        store = PageStore(loaded.engine, plane, loaded.geometry, self._reusable, shared=shared)
        stack.push_async_callback(store.close)
        watch_store(self._metrics, store)
        return store

    async def _open_devices(
        self, stack: AsyncExitStack, server: GrpcServer, loaded: LoadedEngine
    ) -> DevicePlane | None:
        """The way from device to device; None where it is not wanted."""
        if loaded.placement is None:
            return None
        return await open_devices(stack, server, self._metrics, self._plane_spec(loaded), loaded.placement)

    def _plane_spec(self, loaded: LoadedEngine) -> PlaneSpec:
        blocks, store = loaded.host_blocks, self._config.store
        reserve = min(_PULL_RESERVE, blocks // 2) if self._config.role == "both" else 0
        return PlaneSpec(
            worker_id=self._id,
            incarnation=self._incarnation,
            fingerprint=loaded.fingerprint,
            geometry=loaded.geometry,
            host_blocks=blocks,
            host=self._config.host,
            advertised_host=self._advertised,
            transports=host_transports(self._config.transports),
            telemetry=self._config.telemetry,
            pull_reserve=reserve,
            store_blocks=store.blocks(loaded.geometry, blocks, reserve=reserve),
            disk_folder=str(self._config.store_folder or ""),
            disk_bytes=store.disk,
            cluster_master=store.cluster or "",
            cluster_bytes=store.lent,
        )

    def _add_services(
        self, server: GrpcServer, gate: Gate, loaded: LoadedEngine, plane: DataPlane, devices: DevicePlane | None
    ) -> None:
        parts = TierParts(loaded.engine, plane, loaded.geometry, loaded.salt, loaded.vocab)
        prefill, decode = PrefillServicer(gate, parts, devices), DecodeServicer(gate, parts, devices)
        server.add(prefill_pb2_grpc.add_PrefillServicer_to_server, prefill, "halfmoon.v1.Prefill")
        server.add(decode_pb2_grpc.add_DecodeServicer_to_server, decode, "halfmoon.v1.Decode")

    def _info(self, loaded: LoadedEngine, port: int, kv_endpoint: str) -> router_pb2.WorkerInfo:
        return router_pb2.WorkerInfo(
            worker_id=self._id,
            incarnation=self._incarnation,
            address=f"{self._advertised}:{port}",
            role=_ROLES[self._config.role],
            model_fingerprint=loaded.fingerprint,
            geometry=geometry_to_pb(loaded.geometry),
            max_model_len=loaded.max_model_len,
            kv_endpoint=kv_endpoint,
        )

    def _report(self, gate: Gate, loaded: LoadedEngine) -> WorkerReport:
        status = loaded.engine.board.status
        self._reusable.device_changed(*loaded.engine.board.take_cache_changes())
        load = router_pb2.WorkerLoad(
            requests_running=status.requests_running,
            requests_waiting=status.requests_waiting,
            pages_total=status.pages_total,
            pages_free=status.pages_free,
            prefill_tokens_queued=status.prefill_tokens_queued,
        )
        return WorkerReport(_STATES[gate.state], load, *self._reusable.take_changes())


async def _drain(server: GrpcServer, plane: DataPlane, store: PageStore | None, seconds: float) -> None:
    """Finishes the requests that are here, and stays for those who have still to read what was computed for them.

    A `store` that outlasts the process gets what it has not got yet.
    """
    deadline = time.monotonic() + seconds
    await server.stop(seconds)
    try:
        if not await plane.drained(max(0.0, deadline - time.monotonic())):
            _log.warning("KV handles are still open at the end of the drain")
        if store is not None:
            await store.drained(max(0.0, deadline - time.monotonic()))
    except HalfmoonError as error:
        _log.warning("the data plane does not say what is still open", extra={"error": error})
