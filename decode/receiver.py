"""From a peer's handle to pages of this engine."""

import asyncio
from collections.abc import Sequence

from halfmoon.cache.hashing import page_hashes
from halfmoon.engine.engine import Engine
from halfmoon.errors import TransferError
from halfmoon.v1 import kvtransfer_pb2
from halfmoon.wire import geometry_from_pb, token_from_pb
from kvtransfer import DataPlane


def check_handle(handle: kvtransfer_pb2.KvHandle, prompt: Sequence[int], salt: bytes, plane: DataPlane) -> None:
    """Raises TransferError unless the handle's blocks are the pages of this prompt: what counts is their content."""
    geometry = plane.geometry
    if geometry_from_pb(handle.geometry) != geometry:
        raise TransferError(f"the handle's pages are {geometry_from_pb(handle.geometry)}, this worker's {geometry}")
    expected = page_hashes(salt, prompt, geometry.page_size)
    offered = [block.content_hash for block in handle.blocks if block.content_hash]
    if len(handle.blocks) != geometry.pages_for(len(prompt)) or offered != expected:
        raise TransferError(f"the handle's {len(handle.blocks)} blocks are not the pages of this prompt")


async def receive(
    engine: Engine,
    plane: DataPlane,
    request_id: str,
    handle: kvtransfer_pb2.KvHandle,
    missing: Sequence[int],
    seconds: float,
) -> kvtransfer_pb2.PullComplete:
    """Pulls the missing pages into the engine and starts its choices. Raises TransferError."""
    async for event in plane.pull(request_id, handle, missing, seconds):
        if isinstance(event, kvtransfer_pb2.PullComplete):
            engine.attach(request_id, [token_from_pb(token) for token in event.seal.first_tokens])
            return event
        await _deliver(engine, plane, request_id, event)
    raise TransferError(f"the transfer of request {request_id} ended without a seal")


async def _deliver(engine: Engine, plane: DataPlane, request_id: str, pulled: kvtransfer_pb2.PulledBlock) -> None:
    """The host block goes back when the engine has read it, also when this is cancelled meanwhile."""
    view = plane.block(pulled.offset).view(plane.geometry.dtype).reshape(plane.geometry.shape)
    delivered = asyncio.wrap_future(engine.deliver(request_id, pulled.block_index, view))
    try:
        await asyncio.shield(delivered)
    except asyncio.CancelledError:
        await delivered
        raise
    finally:
        await plane.free_blocks([pulled.offset])
