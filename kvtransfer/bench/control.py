"""How long a control call takes while the engine beside the data plane works."""

import asyncio
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection

import grpc
import numpy as np

from halfmoon.config import PageGeometry
from halfmoon.errors import TransferError
from halfmoon.v1 import kvtransfer_pb2 as pb
from halfmoon.v1 import kvtransfer_pb2_grpc as rpc
from kvtransfer.bench.figures import percentile
from kvtransfer.bench.worker import Worker, answer_all
from kvtransfer.checksum import block_checksum
from kvtransfer.client import DataPlane
from kvtransfer.spec import PlaneSpec

_INCARNATION = 0xBE9C5
_SECONDS = 600.0
_CALL_SECONDS = 10.0
_PAUSE_SECONDS = 0.002
_GEOMETRY = PageGeometry(layers=1, kv_heads=1, page_size=64, head_dim=64, dtype="float32")


@dataclass(frozen=True, slots=True)
class ControlTimes:
    """Seconds of `KvTransfer.Renew`."""

    calls: int
    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class _Lease:
    endpoint: str
    handle_id: bytes


def measure_control(calls: int) -> ControlTimes:
    """Renews a lease so many times. Raises HalfmoonError when a call fails."""
    engine = Worker("engine", engine_main)
    try:
        lease = engine.ask(None)
        assert isinstance(lease, _Lease)
        seconds = sorted(_renewals(lease, calls))
    finally:
        engine.close()
    return ControlTimes(calls, percentile(seconds, 0.5), percentile(seconds, 0.99))


def _renewals(lease: _Lease, calls: int) -> list[float]:
    request = pb.RenewRequest(handle_id=lease.handle_id, expected_incarnation=_INCARNATION)
    seconds = []
    with grpc.insecure_channel(lease.endpoint) as channel:
        stub = rpc.KvTransferStub(channel)
        try:
            stub.Renew(request, timeout=_CALL_SECONDS, wait_for_ready=True)
            for _ in range(calls):
                began = time.perf_counter()
                stub.Renew(request, timeout=_CALL_SECONDS)
                seconds.append(time.perf_counter() - began)
                time.sleep(_PAUSE_SECONDS)
        except grpc.RpcError as error:
            raise TransferError(f"the lease could not be renewed: {error}") from error
    return seconds


def engine_main(pipe: Connection) -> None:
    """The process of an engine with its data plane: answers with a lease, and works until its parent is gone."""
    with asyncio.Runner() as runner:
        plane = runner.run(_start())
        done = threading.Event()
        working = threading.Thread(target=_work, args=(done,), name="engine")
        working.start()
        try:
            answer_all(pipe, lambda _: runner.run(_offer(plane)))
        finally:
            done.set()
            working.join()
            runner.run(plane.close())


async def _start() -> DataPlane:
    return await DataPlane.start(PlaneSpec("bench", _INCARNATION, "bench", _GEOMETRY, 4, lease_seconds=_SECONDS))


async def _offer(plane: DataPlane) -> _Lease:
    handle = await plane.offer("bench", [pb.KvBlock(content_hash=b"bench", tokens=_GEOMETRY.page_size)], _CALL_SECONDS)
    checksum = block_checksum(plane.block(handle.blocks[0].offset))
    await plane.publish(handle.handle_id, 0, [checksum])
    await plane.seal(handle.handle_id, ())
    return _Lease(plane.endpoint, handle.handle_id)


def _work(done: threading.Event) -> None:
    """As an engine does: some bookkeeping that holds the interpreter, then a product that takes all cores."""
    matrix = np.ones((512, 512), dtype=np.float32)
    while not done.is_set():
        sum(number * number for number in range(20_000))
        matrix = np.tanh(matrix @ matrix)
