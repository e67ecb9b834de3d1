"""How a worker's KV lies on its devices, and in which pieces it can go to another worker's. Pure."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from halfmoon.config import PageGeometry
from halfmoon.errors import ConfigError, IncompatibleError
from halfmoon.v1 import devicetransfer_pb2 as pb
from halfmoon.wire import geometry_from_pb, geometry_to_pb


@dataclass(frozen=True, slots=True)
class DeviceLayout:
    """Pages of `geometry` whose KV heads are shared out over `shards` devices.

    Pages are moved in arrays of some number of them, one of `page_counts`, ascending: for others nothing is compiled.
    """

    geometry: PageGeometry
    shards: int
    page_counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.divides:
            raise ConfigError(f"{self.geometry.kv_heads} KV heads cannot be shared out over {self.shards} devices")

    @property
    def divides(self) -> bool:
        """Whether every device holds whole heads, and as many as any other."""
        return self.shards > 0 and self.geometry.kv_heads % self.shards == 0

    def __str__(self) -> str:
        counts = ", ".join(str(count) for count in self.page_counts)
        return f"{self.geometry} over {self.shards} devices, {counts} pages at once"


def common_pieces(owner: DeviceLayout, reader: DeviceLayout) -> int:
    """Into how many pieces along the KV heads a block is cut so that each lies on one device at both ends.

    Raises IncompatibleError, with both named, when pages differ or the reader cannot take as many at once.
    """
    if owner.geometry != reader.geometry or not set(owner.page_counts) <= set(reader.page_counts):
        raise IncompatibleError(f"the reader's pages are {reader}, the owner's are {owner}")
    return math.lcm(owner.shards, reader.shards)


def layout_to_pb(layout: DeviceLayout) -> pb.DeviceLayout:
    """For the handshake."""
    return pb.DeviceLayout(
        geometry=geometry_to_pb(layout.geometry), shards=layout.shards, page_counts=layout.page_counts
    )


def layout_from_pb(message: pb.DeviceLayout) -> DeviceLayout:
    """The reverse of `layout_to_pb`. Raises IncompatibleError for what no worker can have."""
    try:
        return DeviceLayout(geometry_from_pb(message.geometry), message.shards, _ascending(message.page_counts))
    except ConfigError as error:
        raise IncompatibleError(f"the peer's layout: {error.message}") from error


def _ascending(counts: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(counts)))
