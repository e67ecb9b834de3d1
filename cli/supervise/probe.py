"""Asks a program whether it is ready."""

import asyncio
import http.client

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cli.supervise.program import Readiness
from halfmoon.rpc import open_channel

PROBE_SECONDS = 1.0
"""Bound of one question."""

INTERVAL_SECONDS = 0.2
"""Between two questions."""


async def wait_ready(readiness: Readiness) -> None:
    """Asks until the answer is yes; the caller bounds the wait by cancelling it."""
    while True:
        if await is_ready(readiness):
            return
        await asyncio.sleep(INTERVAL_SECONDS)


async def is_ready(readiness: Readiness) -> bool:
    """Whether it says so now; False as well when nothing answers within `PROBE_SECONDS`."""
    if readiness.http:
        return await asyncio.to_thread(_http_ready, readiness)
    return await _grpc_ready(readiness)


def _http_ready(readiness: Readiness) -> bool:
    connection = http.client.HTTPConnection(readiness.host, readiness.port, timeout=PROBE_SECONDS)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


async def _grpc_ready(readiness: Readiness) -> bool:
    async with open_channel(f"{readiness.host}:{readiness.port}") as channel:
        health = health_pb2_grpc.HealthStub(channel)
        try:
            answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=PROBE_SECONDS)
        except grpc.aio.AioRpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
