"""What both sides of a worker's device transfer are told."""

from dataclasses import dataclass

from halfmoon.config import DEADLINES
from kvtransfer.device.layout import DeviceLayout


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """Who the worker is, how its KV lies, and the bounds. Times are in seconds, sizes in bytes.

    At most `max_bytes` of pages are kept on the device for readers. A reader holds at most `window` grants at once,
    each good for `grant_seconds`. Pages that no reader asks for in `claim_seconds` are taken to be read another way.
    """

    worker_id: str
    incarnation: int
    fingerprint: str
    layout: DeviceLayout
    max_bytes: int = 1 << 30
    window: int = 4
    lease_seconds: float = DEADLINES.lease
    grant_seconds: float = 5.0
    claim_seconds: float = 0.25
    control_seconds: float = DEADLINES.control
