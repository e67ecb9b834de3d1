"""What a worker tells its data plane when it starts it."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from halfmoon.config import DEADLINES, PageGeometry
from halfmoon.errors import ConfigError
from halfmoon.telemetry import TelemetrySettings
from kvtransfer.layout import BlockLayout

TRANSPORTS = ("shm", "tcp")
"""Those used unless others are asked for, best first."""

KNOWN_TRANSPORTS = (*TRANSPORTS, "mooncake")
"""All there are. `mooncake` needs the extra of that name."""


@dataclass(frozen=True, slots=True)
class PlaneSpec:
    """Who the worker is, what its blocks look like, and the bounds. Times are in seconds.

    `host` is where the `KvTransfer` service and the `tcp` transport listen, `advertised_host` what peers connect to
    (`host` unless given); `port` is the service's, `tcp_port` and `mooncake_port` the transports', and 0 lets the
    system draw one. A pull holds at most `pull_window` host blocks at once. Offers leave the last `pull_reserve` blocks
    alone: a worker that both offers and pulls needs some, or two such workers can wait for each other. `read_seconds`
    bounds one batch of blocks.

    The prefix store uses at most `store_blocks` of the host blocks, and only such as nobody else needs; 0 means that
    there is none. Below host memory it keeps up to `disk_bytes` in `disk_folder`, which no other worker may use at the
    same time; an empty name means that there is no disk. Below both it uses the pool of the Mooncake master at
    `cluster_master` (host:port; empty means none), to which it lends `cluster_bytes` of memory.
    """

    worker_id: str
    incarnation: int
    fingerprint: str
    geometry: PageGeometry
    host_blocks: int
    host: str = "127.0.0.1"
    advertised_host: str = ""
    port: int = 0
    tcp_port: int = 0
    mooncake_port: int = 0
    transports: tuple[str, ...] = TRANSPORTS
    lease_seconds: float = DEADLINES.lease
    connect_seconds: float = DEADLINES.connect
    control_seconds: float = DEADLINES.control
    read_seconds: float = 5.0
    pull_window: int = 32
    pull_reserve: int = 0
    offer_queue: int = 1024
    store_blocks: int = 0
    disk_folder: str = ""
    disk_bytes: int = 0
    cluster_master: str = ""
    cluster_bytes: int = 0
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)

    def __post_init__(self) -> None:
        unknown = set(self.transports) - set(KNOWN_TRANSPORTS)
        if unknown or not self.transports:
            raise ConfigError(f"transports {sorted(unknown)} are unknown, there are {', '.join(KNOWN_TRANSPORTS)}")
        if self.host_blocks < 1 or self.pull_window < 1 or not 0 <= self.pull_reserve < self.host_blocks:
            raise ConfigError(
                f"{self.host_blocks} host blocks, a window of {self.pull_window}, a reserve of {self.pull_reserve}"
            )
        self._check_store()
        if self.peer_host in {"0.0.0.0", "::"}:
            raise ConfigError(f"peers cannot connect to {self.peer_host}: give the host that they shall connect to")

    def _check_store(self) -> None:
        most = self.host_blocks - self.pull_reserve
        if not 0 <= self.store_blocks <= most:
            raise ConfigError(f"a prefix store of {self.store_blocks} host blocks, there are {most} for it")
        if self.cluster_master and not self.store_blocks:
            raise ConfigError("pages go to a cluster's pool from host memory: give the prefix store host blocks")
        if self.disk_folder and not self.store_blocks:
            raise ConfigError("pages go to disk from host memory: give the prefix store host blocks too")

    @property
    def peer_host(self) -> str:
        """What peers connect to."""
        return self.advertised_host or self.host

    @property
    def layout(self) -> BlockLayout:
        """Where the blocks lie in the host pool."""
        return BlockLayout(self.geometry.block_bytes, self.host_blocks)

    @property
    def grace_seconds(self) -> float:
        """How long an ended handle waits for its last reads: longer than a reader waits for a batch."""
        return self.read_seconds + 1.0

    def to_json(self) -> str:
        """For the data-plane process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The reverse of `to_json`."""
        fields: dict[str, Any] = json.loads(text)
        geometry = PageGeometry(**fields.pop("geometry"))
        telemetry = TelemetrySettings(**fields.pop("telemetry"))
        return cls(geometry=geometry, transports=tuple(fields.pop("transports")), telemetry=telemetry, **fields)
