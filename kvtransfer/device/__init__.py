"""KV pages from the devices of one worker to those of another (`jax.experimental.transfer`), past the host pools.

It lives in the engine processes, which have JAX; data-plane processes and routers do not import it. `DeviceOwner` and
`DeviceReader` are the two sides of a worker over its one `DeviceLink`, and `DevicePlane` is all of them.
"""

from kvtransfer.device.layout import DeviceLayout
from kvtransfer.device.link import DeviceLink
from kvtransfer.device.owner import DeviceOwner
from kvtransfer.device.pieces import Placement
from kvtransfer.device.plane import DevicePlane
from kvtransfer.device.reader import DeviceReader, FetchedPages, FetchedSeal
from kvtransfer.device.spec import DeviceSpec

__all__ = [
    "DeviceLayout",
    "DeviceLink",
    "DeviceOwner",
    "DevicePlane",
    "DeviceReader",
    "DeviceSpec",
    "FetchedPages",
    "FetchedSeal",
    "Placement",
]
