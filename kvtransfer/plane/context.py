"""What the parts of the reader share."""

from collections import Counter
from dataclasses import dataclass, field

from kvtransfer.plane.host_blocks import HostBlocks
from kvtransfer.plane.peers import PeerBook
from kvtransfer.region import Region
from kvtransfer.spec import PlaneSpec


@dataclass(slots=True)
class TransferMeters:
    """Payload bytes by transport, ended pulls by final state."""

    bytes_read: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class PlaneContext:
    """The parts of this process that a pull uses.

    `delivered` has the index in its handle of each host block that the engine holds.
    """

    spec: PlaneSpec
    region: Region
    blocks: HostBlocks
    peers: PeerBook
    meters: TransferMeters = field(default_factory=TransferMeters)
    delivered: dict[int, int] = field(default_factory=dict)
