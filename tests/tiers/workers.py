"""Workers over a small model inside the test's process: real engine threads, data planes and gRPC servers."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import jax

from decode import DecodeServicer
from halfmoon.engine.core import EngineCore
from halfmoon.engine.engine import Engine
from halfmoon.rpc import GrpcServer, open_channel
from halfmoon.runner.runner import Runner
from halfmoon.telemetry import TelemetrySettings
from halfmoon.tier import Gate, TierParts, WorkerState, post_to
from halfmoon.v1 import (
    common_pb2,
    decode_pb2,
    decode_pb2_grpc,
    devicetransfer_pb2_grpc,
    kvtransfer_pb2,
    prefill_pb2,
    prefill_pb2_grpc,
)
from kvtransfer import DataPlane, PlaneSpec
from kvtransfer.device import DeviceLayout, DevicePlane, DeviceSpec, Placement
from kvtransfer.paging import PageStore, ReusablePages
from prefill import PrefillServicer
from tests.engine.small import END_ID, SALT

FINGERPRINT = "f" * 32
VOCABULARY = 300

_DISK_BYTES = 1 << 28

_NO_TELEMETRY = TelemetrySettings()


@dataclass(slots=True)
class TestWorker:
    """One worker and its stubs."""

    __test__ = False

    engine: Engine
    core: EngineCore
    plane: DataPlane
    gate: Gate
    prefill: "prefill_pb2_grpc.PrefillAsyncStub"
    decode: "decode_pb2_grpc.DecodeAsyncStub"
    address: str
    store: PageStore | None = None
    devices: DevicePlane | None = None

    async def assert_at_rest(self, seconds: float = 5.0) -> None:
        """Fails unless everything is given back within so many seconds."""
        deadline = asyncio.get_running_loop().time() + seconds
        while (busy := await self._busy()) and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        assert not busy
        await asyncio.wrap_future(self.engine.check())

    async def _busy(self) -> dict[str, int]:
        stats, status = await self.plane.stats(), self.engine.board.status
        gauges = {
            "pages": status.pages_used,
            "running": status.requests_running,
            "waiting": status.requests_waiting,
            "streams": self.gate.inside,
            "host blocks": stats.host_blocks_used,
            "handles": stats.handles_open,
            "transfers": stats.transfers_active,
            "leases of stored pages": stats.store_leases,
            "searches": self.store.searches if self.store else 0,
            **(self.devices.gauges if self.devices else {}),
        }
        return {name: value for name, value in gauges.items() if value}


@asynccontextmanager
async def worker(
    runner: Runner,
    *,
    role: str = "both",
    pages: int | None = None,
    lease_seconds: float = 30.0,
    host_blocks: int = 64,
    telemetry: TelemetrySettings = _NO_TELEMETRY,
    store_blocks: int = 0,
    disk_folder: Path | None = None,
    with_devices: bool = False,
) -> AsyncIterator[TestWorker]:
    """A worker with its own engine and data plane; ends with everything at rest."""
    geometry = runner.config.geometry
    core = EngineCore(runner, end_ids=[END_ID], salt=SALT, pages=pages)
    engine = Engine(core, post_to(asyncio.get_running_loop()))
    gate = Gate(worker_id=role, role=role, fingerprint=FINGERPRINT, limit=64)
    spec = PlaneSpec(
        worker_id=role,
        incarnation=secrets.randbits(64) | 1,
        fingerprint=FINGERPRINT,
        geometry=geometry,
        host_blocks=host_blocks,
        lease_seconds=lease_seconds,
        telemetry=telemetry,
        store_blocks=store_blocks,
        disk_folder=str(disk_folder or ""),
        disk_bytes=_DISK_BYTES if disk_folder else 0,
    )
    plane = await DataPlane.start(spec)
    server = GrpcServer()
    parts = TierParts(engine, plane, geometry, SALT, VOCABULARY)
    devices = await _device_plane(runner, spec, server) if with_devices else None
    prefill = PrefillServicer(gate, parts, devices)
    server.add(prefill_pb2_grpc.add_PrefillServicer_to_server, prefill, "halfmoon.v1.Prefill")
    server.add(decode_pb2_grpc.add_DecodeServicer_to_server, DecodeServicer(gate, parts, devices), "halfmoon.v1.Decode")
    store = PageStore(engine, plane, geometry, ReusablePages()) if store_blocks else None
    engine.start()
    await server.start()
    gate.state = WorkerState.READY
    address = f"127.0.0.1:{server.port}"
    if devices is not None:
        devices.endpoint = address
    try:
        async with open_channel(address) as channel:
            yield TestWorker(
                engine,
                core,
                plane,
                gate,
                prefill_pb2_grpc.PrefillStub(channel),
                decode_pb2_grpc.DecodeStub(channel),
                address,
                store,
                devices,
            )
    finally:
        await server.stop(0)
        if devices is not None:
            await devices.close()
        if store is not None:
            await store.close()
        await plane.close()
        assert await asyncio.to_thread(engine.stop, 10.0)


async def _device_plane(runner: Runner, spec: PlaneSpec, server: GrpcServer) -> DevicePlane:
    layout = DeviceLayout(spec.geometry, shards=1, page_counts=runner.config.buckets.moved_pages)
    placement = Placement(layout, jax.local_devices())
    placement.warm_up()
    device_spec = DeviceSpec(spec.worker_id, spec.incarnation, spec.fingerprint, layout, lease_seconds=1.0)
    devices = await DevicePlane.start(device_spec, placement, spec.host)
    add = devicetransfer_pb2_grpc.add_DeviceTransferServicer_to_server
    server.add(add, devices.owner, "halfmoon.v1.DeviceTransfer")
    return devices


def sampling(max_tokens: int = 8, **fields: object) -> common_pb2.SamplingParams:
    """Greedy past the end token unless `fields` say otherwise."""
    return common_pb2.SamplingParams(**{"max_tokens": max_tokens, "seed": 1, "ignore_eos": True, **fields})  # type: ignore[arg-type]


def prefill_request(
    prompt: tuple[int, ...], params: common_pb2.SamplingParams, *, publish: bool = True
) -> prefill_pb2.PrefillRequest:
    """A request with an id of its own."""
    return prefill_pb2.PrefillRequest(
        request_id=secrets.token_hex(8),
        model_fingerprint=FINGERPRINT,
        prompt_token_ids=prompt,
        sampling=params,
        publish_kv=publish,
    )


def decode_request(
    prompt: tuple[int, ...],
    params: common_pb2.SamplingParams,
    handle: kvtransfer_pb2.KvHandle | None = None,
    source: kvtransfer_pb2.KvSource | None = None,
) -> decode_pb2.DecodeRequest:
    """A request with an id of its own."""
    return decode_pb2.DecodeRequest(
        request_id=secrets.token_hex(8),
        model_fingerprint=FINGERPRINT,
        prompt_token_ids=prompt,
        sampling=params,
        handle=handle,
        source=source,
    )


@dataclass(slots=True)
class Prefilled:
    """What a prefill stream gave, to its end."""

    handle: kvtransfer_pb2.KvHandle
    cached: int
    result: prefill_pb2.PrefillResult


async def prefilled(worker: TestWorker, request: prefill_pb2.PrefillRequest) -> Prefilled:
    """Runs a prefill to the end of its stream."""
    accepted, result = prefill_pb2.PrefillAccepted(), prefill_pb2.PrefillResult()
    async for response in worker.prefill.Prefill(request, timeout=60):
        match response.WhichOneof("event"):
            case "accepted":
                accepted = response.accepted
            case "result":
                result = response.result
    return Prefilled(accepted.handle, accepted.cached_tokens, result)


async def decoded(
    worker: TestWorker, request: decode_pb2.DecodeRequest
) -> tuple[dict[int, list[int]], list[decode_pb2.DecodeResponse]]:
    """Runs a generation to its end: token ids by choice, and all responses."""
    tokens: dict[int, list[int]] = {}
    responses = [response async for response in worker.decode.Generate(request, timeout=60)]
    for response in responses:
        for token in response.tokens.tokens:
            tokens.setdefault(token.choice, []).append(token.token_id)
    return tokens, responses


def reason(error: grpc.aio.AioRpcError) -> str:
    """The domain's reason of a failed call."""
    from halfmoon.rpc import error_from_rpc

    return error_from_rpc(error).reason
