"""The data-plane process: makes its parts, serves until told to stop, and takes everything down in order."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from halfmoon.rpc import GrpcServer
from halfmoon.v1 import kvtransfer_pb2_grpc as rpc
from kvtransfer.plane.context import PlaneContext
from kvtransfer.plane.engine_service import EngineService
from kvtransfer.plane.host_blocks import HostBlocks
from kvtransfer.plane.names import ENGINE_SOCKET, SHM_SOCKET
from kvtransfer.plane.owner import Owner
from kvtransfer.plane.peer_service import PeerService
from kvtransfer.plane.peers import PeerBook
from kvtransfer.plane.prefix_store import PrefixStore
from kvtransfer.plane.pulls import PullBook
from kvtransfer.region import Region
from kvtransfer.spec import PlaneSpec
from kvtransfer.store.tiers import open_tiers
from kvtransfer.transports.base import TransportServer
from kvtransfer.transports.lease_board import LeaseBoard
from kvtransfer.transports.mooncake_server import MooncakeServer
from kvtransfer.transports.shm_server import ShmServer
from kvtransfer.transports.tcp_server import TcpServer, format_address

_SWEEP_SECONDS = 0.05
_HELLO_SECONDS = 2.0
"""A connection that says nothing for so long is closed."""


@dataclass(frozen=True, slots=True)
class Running:
    """A plane that serves; `endpoint` is the address of its `KvTransfer` service."""

    endpoint: str


async def start_plane(spec: PlaneSpec, region: Region, folder: Path, stack: AsyncExitStack) -> Running:
    """Starts everything; `stack` takes it down. `folder` is private and exists. Raises ConfigError for a taken port."""
    tiers = await open_tiers(spec, region, stack)
    blocks = HostBlocks(spec, [tier.name for tier in tiers])
    store = PrefixStore(spec, region, blocks, tiers)
    stack.push_async_callback(store.close)
    board = LeaseBoard(spec.layout)
    stack.callback(board.close)
    owner = Owner(spec, region, blocks, board)
    peers = PeerBook(spec, region)
    context = PlaneContext(spec, region, blocks, peers)
    pulls = PullBook(context)

    addresses = _start_transports(spec, owner, folder, stack)
    peer_server = GrpcServer(spec.host, spec.port)
    peer_service = PeerService(spec, owner, store, addresses, lambda: format_address(spec.peer_host, peer_server.port))
    peer_server.add(rpc.add_KvTransferServicer_to_server, peer_service, "halfmoon.v1.KvTransfer")
    await peer_server.start()
    stack.push_async_callback(peer_server.stop)
    endpoint = format_address(spec.peer_host, peer_server.port)

    engine_server = GrpcServer(f"unix:{folder / ENGINE_SOCKET}")
    engine_service = EngineService(context, owner, pulls, store, endpoint)
    engine_server.add(rpc.add_DataPlaneServicer_to_server, engine_service, "halfmoon.v1.DataPlane")
    await engine_server.start()
    stack.push_async_callback(engine_server.stop)

    sweeper = asyncio.create_task(_sweep(owner, store, blocks))
    stack.callback(sweeper.cancel)
    stack.push_async_callback(peers.close)
    stack.push_async_callback(pulls.close)
    stack.callback(owner.close)
    await peer_server.set_serving(True)
    await engine_server.set_serving(True)
    return Running(endpoint)


def _start_transports(spec: PlaneSpec, owner: Owner, folder: Path, stack: AsyncExitStack) -> dict[str, str]:
    """Their addresses by name."""
    bounds = {"read_seconds": spec.read_seconds, "hello_seconds": _HELLO_SECONDS}
    servers: list[TransportServer] = []
    if "shm" in spec.transports:
        servers.append(ShmServer(owner, folder / SHM_SOCKET, **bounds))
        stack.callback(servers[-1].close)
    if "tcp" in spec.transports:
        servers.append(TcpServer(owner, spec.host, port=spec.tcp_port, advertised_host=spec.peer_host, **bounds))
        stack.callback(servers[-1].close)
    if "mooncake" in spec.transports:
        port = spec.mooncake_port
        servers.append(MooncakeServer(owner, spec.host, port=port, advertised_host=spec.peer_host, **bounds))
        stack.callback(servers[-1].close)
    return {server.name: server.address for server in servers}


async def _sweep(owner: Owner, store: PrefixStore, blocks: HostBlocks) -> None:
    """Ends what is past its time."""
    while True:
        await asyncio.sleep(_SWEEP_SECONDS)
        owner.expire()
        store.expire()
        blocks.advance()
