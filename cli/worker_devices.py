"""A worker's transfers from device to device, where `--transports` names `jax` before those of the data plane."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial

import jax

from halfmoon.config import PageGeometry
from halfmoon.rpc import GrpcServer
from halfmoon.telemetry import Metrics, Reading
from halfmoon.v1 import devicetransfer_pb2_grpc
from kvtransfer import PlaneSpec
from kvtransfer.device import DeviceLayout, DevicePlane, DeviceSpec, Placement

DEVICE_TRANSPORT = "jax"

_GAUGES = {
    "bytes": "device memory of pages that are kept for readers",
    "handles": "handles whose pages are kept on the device",
    "grants": "arrays that a reader may pull",
    "readers": "readers that are served",
    "fetches": "fetches from peers' devices under way",
    "fetches_abandoned": "pulls that were given up and have not ended",
}


def warm_placement(transports: Sequence[str], geometry: PageGeometry, page_counts: tuple[int, ...]) -> Placement | None:
    """How KV lies on the device, with all compiled that its transfer needs; None where it is not transferred."""
    if DEVICE_TRANSPORT not in transports:
        return None
    placement = Placement(DeviceLayout(geometry, shards=1, page_counts=page_counts), jax.local_devices())
    placement.warm_up()
    return placement


def host_transports(transports: Sequence[str]) -> tuple[str, ...]:
    """Those of the data plane, which knows no devices."""
    return tuple(name for name in transports if name != DEVICE_TRANSPORT)


async def open_devices(
    stack: AsyncExitStack, server: GrpcServer, metrics: Metrics, plane: PlaneSpec, placement: Placement
) -> DevicePlane:
    """Adds the service to `server`, which is not started yet; as many bytes may be kept as the host pool has."""
    spec = DeviceSpec(
        plane.worker_id, plane.incarnation, plane.fingerprint, placement.layout, max_bytes=plane.layout.total_bytes
    )
    devices = await DevicePlane.start(spec, placement, plane.host, plane.peer_host)
    stack.push_async_callback(devices.close)
    add = devicetransfer_pb2_grpc.add_DeviceTransferServicer_to_server
    server.add(add, devices.owner, "halfmoon.v1.DeviceTransfer")
    watch_devices(metrics, devices)
    return devices


def watch_devices(metrics: Metrics, devices: DevicePlane) -> None:
    """Gauges and counters of both sides."""
    for name, description in _GAUGES.items():
        metrics.gauge(f"halfmoon_kv_device_{name}", description, partial(_gauge, devices, name))
    reader = devices.reader
    metrics.counted("halfmoon_kv_device_bytes_read", "KV bytes fetched from peers' devices", lambda: reader.bytes_read)
    metrics.counted("halfmoon_kv_device_fetches_ended", "fetches by final state", partial(_ended, devices))


def _gauge(devices: DevicePlane, name: str) -> float:
    return float(devices.gauges[f"device_{name}"])


def _ended(devices: DevicePlane) -> list[Reading]:
    return [(float(count), {"state": state}) for state, count in devices.reader.fetches_ended.items()]
