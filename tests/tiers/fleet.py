"""Gateway and router in front of workers over a small model, all in the test's process but for the data planes."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx

from gateway import GatewayConfig, GatewayProgram
from halfmoon.config import PageGeometry
from halfmoon.rpc import RegistrationAgent, WorkerReport
from halfmoon.telemetry import Metrics
from halfmoon.v1 import router_pb2
from halfmoon.wire import geometry_to_pb
from router import PolicySettings, RouterConfig, RouterProgram
from tests.engine.small import MAX_MODEL_LEN
from tests.router.cluster import ROLES, until
from tests.router.tiny_text import tiny_text
from tests.tiers.workers import FINGERPRINT, TestWorker

MODEL = "small"


@dataclass(frozen=True, slots=True)
class Front:
    """A client of a gateway, and what is behind it."""

    http: httpx.AsyncClient
    router: RouterProgram
    gateway_metrics: Metrics


@asynccontextmanager
async def http_front(geometry: PageGeometry, **workers: TestWorker) -> AsyncIterator[Front]:
    """A gateway whose router always splits; workers are given by ids that begin with their role."""
    policy = PolicySettings(split_threshold=0)
    router = RouterProgram(
        RouterConfig(Path(MODEL), heartbeat=0.05, policy=policy), replace(tiny_text(), fingerprint=FINGERPRINT)
    )
    await router.start()
    metrics = Metrics("gateway")
    config = GatewayConfig(routers=(f"127.0.0.1:{router.port}",), port=0, vllm_names=True)
    gateway = GatewayProgram(config, metrics)
    await gateway.start()
    agents: list[RegistrationAgent] = []
    try:
        for worker_id, worker in workers.items():
            info = _info(worker_id, worker.address, geometry)
            agents.append(RegistrationAgent([f"127.0.0.1:{router.port}"], info, _report, interval=0.05))
            agents[-1].start()
        await until(lambda: all(agent.registered for agent in agents))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{gateway.port}", timeout=30) as http:
            yield Front(http, router, metrics)
    finally:
        for agent in agents:
            await agent.close()
        await gateway.stop(0.2)
        await router.stop(0.2)
        metrics.close()


def _info(worker_id: str, address: str, geometry: PageGeometry) -> router_pb2.WorkerInfo:
    return router_pb2.WorkerInfo(
        worker_id=worker_id,
        incarnation=secrets.randbits(64) | 1,
        address=address,
        role=ROLES[worker_id[0]],
        model_fingerprint=FINGERPRINT,
        geometry=geometry_to_pb(geometry),
        max_model_len=MAX_MODEL_LEN,
    )


def _report() -> WorkerReport:
    return WorkerReport(router_pb2.WORKER_STATE_READY, router_pb2.WorkerLoad(pages_total=64, pages_free=64))
