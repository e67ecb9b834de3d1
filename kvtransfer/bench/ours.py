"""This project's transports, with leases, proofs and deadlines as the data plane uses them."""

import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

from halfmoon.config import PageGeometry
from halfmoon.errors import TransferError
from kvtransfer.bench.cases import Case
from kvtransfer.bench.sides import Offer
from kvtransfer.checksum import block_checksum
from kvtransfer.layout import HOST_REGION
from kvtransfer.plane.batching import batch_blocks
from kvtransfer.plane.block_fetch import WantedBlock, fetch_blocks
from kvtransfer.plane.host_blocks import HostBlocks
from kvtransfer.plane.owner import Owner
from kvtransfer.proofs import new_handle_id
from kvtransfer.region import Region
from kvtransfer.spec import PlaneSpec
from kvtransfer.transports.base import BlockRead, ReadGate, ReadKey, ReadStatus, StopSignal, Transport, TransportServer
from kvtransfer.transports.lease_board import LeaseBoard
from kvtransfer.transports.mooncake import MooncakeTransport
from kvtransfer.transports.mooncake_server import MooncakeServer
from kvtransfer.transports.shm import ShmTransport
from kvtransfer.transports.shm_server import ShmServer
from kvtransfer.transports.tcp import TcpTransport
from kvtransfer.transports.tcp_server import TcpServer

_HOST = "127.0.0.1"
_INCARNATION = 0xBE9C4
_SECONDS = 3600.0
"""Lease of the handle that is read: longer than any run."""

_READ_SECONDS = 60.0
_CONNECT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Way:
    """How both ends of a transport are made; `serve` gets a folder for what it puts on disk."""

    name: str
    serve: Callable[[ReadGate, Path], TransportServer]
    connect: Callable[[str], Transport]


def _serve_shm(gate: ReadGate, folder: Path) -> TransportServer:
    return ShmServer(gate, folder / "shm.sock", read_seconds=_READ_SECONDS, hello_seconds=_CONNECT_SECONDS)


def _serve_tcp(gate: ReadGate, folder: Path) -> TransportServer:
    return TcpServer(gate, _HOST, read_seconds=_READ_SECONDS, hello_seconds=_CONNECT_SECONDS)


def _serve_mooncake(gate: ReadGate, folder: Path) -> TransportServer:
    return MooncakeServer(gate, _HOST, read_seconds=_READ_SECONDS, hello_seconds=_CONNECT_SECONDS)


WAYS = (
    Way("shm", _serve_shm, lambda address: ShmTransport(address, connect_seconds=_CONNECT_SECONDS)),
    Way("tcp", _serve_tcp, lambda address: TcpTransport(address, connect_seconds=_CONNECT_SECONDS)),
    Way("mooncake", _serve_mooncake, lambda address: MooncakeTransport(address, connect_seconds=_CONNECT_SECONDS)),
)
"""All transports of this project. A new one joins here."""


class TransportOwner:
    """A handle over the whole pool of a case, sealed, behind a transport's server."""

    def __init__(self, way: Way, region: Region) -> None:
        self._way = way
        self._region = region
        self._stack = ExitStack()

    async def offer(self, case: Case) -> Offer:
        """See `OwnerSide`."""
        self.close()
        layout = case.layout
        geometry = PageGeometry(layers=1, kv_heads=1, page_size=case.block_bytes // 2, head_dim=1, dtype="uint8")
        spec = PlaneSpec("bench", _INCARNATION, "bench", geometry, layout.count, host=_HOST, lease_seconds=_SECONDS)
        board = LeaseBoard(layout)
        self._stack.callback(board.close)
        owner = Owner(spec, self._region, HostBlocks(spec), board)
        handle = await owner.offer(new_handle_id(), "bench", layout.count, _SECONDS)
        checksums = {block: self._checksum(case, block) for block in handle.blocks}
        owner.publish(handle.handle_id, 0, checksums.values())
        owner.seal(handle.handle_id, b"")
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="halfmoon-bench-"))
        server = self._way.serve(owner, Path(folder))
        self._stack.callback(server.close)
        by_place = tuple(checksums[place] for place in range(layout.count))
        return Offer(server.address, handle_id=handle.handle_id, incarnation=_INCARNATION, checksums=by_place)

    def close(self) -> None:
        """See `OwnerSide`."""
        self._stack.close()

    def _checksum(self, case: Case, place: int) -> int:
        return block_checksum(self._region.view(case.layout.offset(place), case.block_bytes))


class TransportReader:
    """Reads in pieces, by as many threads as the transport wants, as a pull of the data plane does."""

    def __init__(self, way: Way, region: Region, *, hashed: bool) -> None:
        self._way = way
        self._region = region
        self._fetch = fetch_blocks if hashed else _fetch_unchecked
        self._stack = ExitStack()
        self._transport: Transport | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._key = ReadKey(b"", 0)
        self._pieces: list[list[WantedBlock]] = []

    def prepare(self, case: Case, offer: Offer) -> None:
        """See `ReaderSide`."""
        self.close()
        self._transport = self._way.connect(offer.address)
        self._stack.callback(self._transport.close)
        self._transport.register(self._region)
        if self._transport.streams > 1:
            self._threads = ThreadPoolExecutor(self._transport.streams - 1, thread_name_prefix="bench-read")
            self._stack.callback(self._threads.shutdown)
        self._key = ReadKey(offer.handle_id, offer.incarnation)
        self._pieces = pieces(wanted_blocks(case, offer), self._transport.streams)

    def read(self) -> None:
        """See `ReaderSide`."""
        if self._transport is None:
            raise TransferError("no case is prepared")
        left: SimpleQueue[list[WantedBlock]] = SimpleQueue()
        for piece in self._pieces:
            left.put(piece)
        helpers = min(self._transport.streams, len(self._pieces)) - 1
        jobs = [self._threads.submit(self._drain, left) for _ in range(helpers)] if self._threads else []
        self._drain(left)
        for job in jobs:
            job.result(_READ_SECONDS)

    def close(self) -> None:
        """See `ReaderSide`."""
        self._stack.close()
        self._transport = self._threads = None

    def _drain(self, left: "SimpleQueue[list[WantedBlock]]") -> None:
        assert self._transport is not None
        deadline = time.monotonic() + _READ_SECONDS
        while True:
            try:
                piece = left.get_nowait()
            except Empty:
                return
            self._fetch(
                self._transport,
                self._region,
                self._key,
                piece,
                read_seconds=_READ_SECONDS,
                deadline=deadline,
                stop=StopSignal(),
            )


def wanted_blocks(case: Case, offer: Offer) -> list[WantedBlock]:
    """The blocks of a case, with the checksums that they must have."""
    layout = case.layout
    return [
        WantedBlock(
            index,
            BlockRead(HOST_REGION, layout.offset(source), case.block_bytes, layout.offset(target)),
            offer.checksums[source],
            target,
        )
        for index, (source, target) in enumerate(case.moves)
    ]


def pieces(wanted: Sequence[WantedBlock], streams: int) -> list[list[WantedBlock]]:
    """Cut as the data plane cuts a pull whose blocks are all ready."""
    cut, first = [], 0
    while first < len(wanted):
        size = batch_blocks(len(wanted) - first, streams, wanted[first].read.length)
        cut.append(list(wanted[first : first + size]))
        first += size
    return cut


def _fetch_unchecked(
    transport: Transport,
    region: Region,
    key: ReadKey,
    wanted: Sequence[WantedBlock],
    *,
    read_seconds: float,
    deadline: float,
    stop: StopSignal,
) -> None:
    """As `fetch_blocks`, without the checksums."""
    bound = min(deadline, time.monotonic() + read_seconds)
    statuses = transport.read_batch(key, [block.read for block in wanted], deadline=bound, stop=stop)
    if set(statuses) != {ReadStatus.OK}:
        raise TransferError(f"a batch over {transport.name} ended with {statuses}")
