"""The gateway as a program: bound, served, drained, stopped."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator

import uvicorn

from gateway.app import create_app
from gateway.client import RouterClient
from gateway.config import GatewayConfig
from gateway.connection import PunctualProtocol
from gateway.running import Running
from halfmoon.config import RETRY_AFTER
from halfmoon.errors import ConfigError, UnavailableError
from halfmoon.telemetry import Metrics

_log = logging.getLogger(__name__)

_ABORT_SECONDS = 2.0
"""How long requests that were ended by force may take to tell their clients."""

_SILENT_SECONDS = 30
"""A connection without traffic for this long is probed; after as long again without an answer it is dead."""

_KEEP_ALIVE_SECONDS = 75
"""How long a connection may be silent between requests, and how long the head of one may take."""

_BACKLOG = 2048


class GatewayProgram:
    """One gateway in the running event loop: `start`, serve at `port`, `stop`.

    Owns its socket, its channels to the routers, and its metrics unless they are given. Signals are the caller's.
    """

    def __init__(self, config: GatewayConfig, metrics: Metrics | None = None) -> None:
        self._config = config
        self._metrics = metrics or Metrics("gateway")
        self._owns_metrics = metrics is None
        self._running = Running(config.max_running)
        self._client: RouterClient | None = None
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._port = 0

    @property
    def port(self) -> int:
        """The bound port; known once started."""
        if self._serving is None:
            raise RuntimeError("the gateway is not started")
        return self._port

    async def start(self) -> None:
        """Binds and serves. Raises ConfigError when the address cannot be bound."""
        listener = _bind(self._config.host, self._config.port)
        self._port = int(listener.getsockname()[1])
        self._client = RouterClient(self._config.routers, control_seconds=self._config.control_seconds)
        app = create_app(self._config, self._client, self._metrics, running=self._running)
        self._server = _Server(
            uvicorn.Config(
                app,
                http=PunctualProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=_BACKLOG,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=1,
            )
        )
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]), name="gateway http")
        up = asyncio.create_task(self._server.up.wait())
        await asyncio.wait((up, self._serving), return_when=asyncio.FIRST_COMPLETED)
        if not up.done():
            up.cancel()
            await self._serving
        _log.info("serving", extra={"host": self._config.host, "port": self._port})

    async def stop(self, grace: float | None = None) -> None:
        """Refuses new requests, gives those under way `grace` seconds, ends the rest with an error, and closes.

        `grace` is the configured time to drain unless given. Idempotent.
        """
        if self._server is None or self._serving is None or self._client is None:
            return
        self._running.drain()
        if not await self._running.wait_idle(self._config.drain_seconds if grace is None else grace):
            _log.warning("requests ended by force", extra={"count": self._running.count})
            self._running.abort(UnavailableError("the server is shutting down", retry_after=RETRY_AFTER))
            await self._running.wait_idle(_ABORT_SECONDS)
        self._server.should_exit = True
        await self._serving
        await self._client.close()
        if self._owns_metrics:
            self._metrics.close()
        self._server = None

    async def wait_closed(self) -> None:
        """Returns when the gateway serves no longer."""
        if self._serving is not None:
            await asyncio.shield(self._serving)


async def run_gateway(config: GatewayConfig, *, stopping: asyncio.Event, metrics: Metrics | None = None) -> None:
    """Serves until `stopping` is set, then drains. Raises ConfigError when the address cannot be bound."""
    program = GatewayProgram(config, metrics)
    await program.start()
    try:
        await stopping.wait()
    finally:
        await program.stop()


class _Server(uvicorn.Server):
    """Leaves signals alone, and says when it is up."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}", param="port") from error
    _set_options(listener)
    return listener


def _set_options(listener: socket.socket) -> None:
    """Options that accepted connections inherit: no delay, and an end by the kernel when the peer is gone or deaf."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_NODELAY", 1),
        ("TCP_KEEPIDLE", _SILENT_SECONDS),
        ("TCP_KEEPINTVL", _SILENT_SECONDS // 6),
        ("TCP_KEEPCNT", 6),
        ("TCP_USER_TIMEOUT", 2 * _SILENT_SECONDS * 1000),
    ):
        if hasattr(socket, option):
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
