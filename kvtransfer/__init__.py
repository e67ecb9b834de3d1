"""Moving KV blocks between workers: handles, leases, transports, and the data-plane process that owns the host pool.

`DataPlane` is what an engine uses; `core` decides, `transports` move bytes, `plane` is the process.
"""

from kvtransfer.checksum import block_checksum
from kvtransfer.client import DataPlane
from kvtransfer.events import PullComplete, PulledBlock
from kvtransfer.lease import keep_lease
from kvtransfer.spec import PlaneSpec
from kvtransfer.store.client import StoreClient, StoreLease, StorePlace

__all__ = [
    "DataPlane",
    "PlaneSpec",
    "PullComplete",
    "PulledBlock",
    "StoreClient",
    "StoreLease",
    "StorePlace",
    "block_checksum",
    "keep_lease",
]
