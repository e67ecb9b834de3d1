"""The gRPC server of a program: our services with health, reflection, bounds and errors."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from halfmoon.config import DEADLINES
from halfmoon.errors import ConfigError
from halfmoon.rpc.interceptor import ErrorInterceptor
from halfmoon.rpc.options import SERVER_OPTIONS

Servicer = TypeVar("Servicer")


class GrpcServer:
    """Made inside the event loop that serves it; NOT_SERVING until `set_serving(True)`.

    Add services, `start()`, and `stop(grace)` once. The address is `host:port` or, with a `unix:` host, a socket path.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._address = host if host.startswith("unix:") else f"{_bracketed(host)}:{port}"
        self._errors = ErrorInterceptor()
        self._server = grpc.aio.server(interceptors=[self._errors], options=SERVER_OPTIONS)
        self._health = health.aio.HealthServicer()
        self._names: list[str] = []
        self._port: int | None = None
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)

    @property
    def port(self) -> int:
        """The bound port; known once started."""
        if self._port is None:
            raise RuntimeError("the server is not started")
        return self._port

    @property
    def active_calls(self) -> int:
        """Calls of our services that are under way."""
        return self._errors.active

    def add(self, register: Callable[[Servicer, grpc.aio.Server], None], servicer: Servicer, name: str) -> None:
        """Adds a service by its generated `add_..._to_server` and full name ("halfmoon.v1.Router"); before `start`."""
        register(servicer, self._server)
        self._names.append(name)

    async def start(self) -> None:
        """Binds and serves. Raises ConfigError when the address cannot be bound."""
        reflection.enable_server_reflection([*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME], self._server)
        await self.set_serving(False)
        try:
            self._port = self._server.add_insecure_port(self._address)
        except RuntimeError as error:
            raise ConfigError(f"cannot listen on {self._address}: the port is in use or not allowed") from error
        await self._server.start()

    async def set_serving(self, serving: bool) -> None:
        """What the health service answers for the program ("") and for each of its services."""
        answer = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", *self._names):
            await self._health.set(name, answer)

    async def stop(self, grace: float = 0.0) -> None:
        """NOT_SERVING at once; waits up to `grace` seconds for calls under way, then ends the rest, which may clean up.

        New calls still reach the services while waiting: what to refuse while draining is theirs to say.
        """
        await self._health.enter_graceful_shutdown()
        await self._wait_idle(grace)
        await self._server.stop(None)
        await self._wait_idle(DEADLINES.control)

    async def _wait_idle(self, bound: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._errors.wait_idle(), bound)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
