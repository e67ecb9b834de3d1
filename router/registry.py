"""The WorkerRegistry service, for workers and operators."""

# ruff: noqa: N802 - methods are named by the protos

import logging
import time
from typing import Any

import grpc

from halfmoon.v1 import router_pb2 as pb
from halfmoon.v1 import router_pb2_grpc
from router.fleet import Fleet
from router.wire import cache_from_pb, description_from_pb, load_from_pb, state_from_pb, status_to_pb

_log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]


class RegistryService(router_pb2_grpc.WorkerRegistryServicer):
    """Gives the fleet what workers report, and the time."""

    def __init__(self, fleet: Fleet, heartbeat: float) -> None:
        self._fleet = fleet
        self._heartbeat_ms = round(heartbeat * 1000)

    async def Register(self, request: pb.RegisterRequest, context: Context) -> pb.RegisterResponse:
        """See router.proto."""
        description = description_from_pb(request.worker)
        state = state_from_pb(request.worker.state)
        self._fleet.register(description, state, time.monotonic())
        _log.info(
            "worker registered",
            extra={
                "worker": description.worker_id,
                "role": description.role.value,
                "address": description.address,
                "state": state.value,
            },
        )
        return pb.RegisterResponse(heartbeat_ms=self._heartbeat_ms)

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Context) -> pb.HeartbeatResponse:
        """See router.proto."""
        wanted = self._fleet.heartbeat(
            request.worker_id,
            request.incarnation,
            state=state_from_pb(request.state),
            load=load_from_pb(request.load),
            cache=cache_from_pb(request),
            now=time.monotonic(),
        )
        return pb.HeartbeatResponse(send_snapshot=wanted)

    async def ListWorkers(self, request: pb.ListWorkersRequest, context: Context) -> pb.ListWorkersResponse:
        """See router.proto."""
        now = time.monotonic()
        return pb.ListWorkersResponse(workers=[status_to_pb(worker, now) for worker in self._fleet.workers])
