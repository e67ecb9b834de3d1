"""All pulls of this process: starting, settling, and the blocks that they left with the engine."""

import asyncio
from collections.abc import Iterable

from halfmoon.errors import IncompatibleError, InvalidRequestError, TransferError
from halfmoon.v1 import kvtransfer_pb2 as pb
from halfmoon.wire import geometry_from_pb
from kvtransfer.core.pool import BlockOwner, Use
from kvtransfer.core.recent import RecentSet
from kvtransfer.layout import HOST_REGION
from kvtransfer.plane.context import PlaneContext
from kvtransfer.plane.pull import Pull
from kvtransfer.spec import PlaneSpec

_REMEMBERED = 4096
"""Settled pulls whose start may still be on its way."""


class PullBook:
    """Pulls under way by their id. Blocks that were delivered stay the engine's until `free` or `settle`."""

    def __init__(self, context: PlaneContext) -> None:
        self._context = context
        self._running: dict[int, Pull] = {}
        self._settled: RecentSet[int] = RecentSet(_REMEMBERED)

    @property
    def active_count(self) -> int:
        """Pulls under way."""
        return len(self._running)

    def start(self, request: pb.PullRequest) -> Pull:
        """Raises InvalidRequestError, IncompatibleError or TransferError for a request that cannot work."""
        _check(self._context.spec, request)
        if request.pull_id in self._running or request.pull_id in self._settled or not request.pull_id:
            raise InvalidRequestError(f"pull {request.pull_id:x} exists, or has been settled")
        pull = Pull(self._context, request)
        self._running[request.pull_id] = pull
        pull.task.add_done_callback(lambda _: self._running.pop(request.pull_id))
        return pull

    async def settle(self, pull_id: int, kept: Iterable[int]) -> int:
        """Ends a pull and returns all its blocks but those with the indices `kept`; how many those were.

        An index names one delivery; a host block may have been freed and delivered again, unseen by the engine.
        """
        self._settled.add(pull_id)
        pull = self._running.get(pull_id)
        if pull is not None:
            await pull.stop()
        delivered = BlockOwner(Use.DELIVERED, pull_id)
        stay = set(kept)
        held = self._context.blocks.held_by(delivered)
        returned = [block for block in held if self._context.delivered[block] not in stay]
        self._release(returned, delivered)
        return len(returned)

    def free(self, offsets: Iterable[int]) -> None:
        """Returns delivered blocks. Raises InvalidRequestError, and frees none, when one is not the engine's."""
        blocks = {self._block(offset) for offset in offsets}
        owners = {block: self._context.blocks.owner_of_delivered(block) for block in blocks}
        for owner in set(owners.values()):
            self._release([block for block in blocks if owners[block] == owner], owner)
        for pull in self._running.values():
            pull.window_moved()

    async def close(self) -> None:
        """Stops all pulls."""
        if self._running:
            await asyncio.gather(*(pull.stop() for pull in list(self._running.values())))

    def _release(self, blocks: list[int], owner: BlockOwner) -> None:
        self._context.blocks.release(blocks, owner)
        for block in blocks:
            del self._context.delivered[block]

    def _block(self, offset: int) -> int:
        try:
            return self._context.spec.layout.index(offset)
        except ValueError as error:
            raise InvalidRequestError(str(error)) from error


def _check(spec: PlaneSpec, request: pb.PullRequest) -> None:
    """What can be said of a request before anybody is asked."""
    handle, wanted = request.handle, list(request.block_indices)
    geometry = geometry_from_pb(handle.geometry)
    if handle.model_fingerprint != spec.fingerprint:
        raise IncompatibleError(
            f"the handle's model is {handle.model_fingerprint}, this worker's is {spec.fingerprint}"
        )
    if geometry != spec.geometry:
        raise IncompatibleError(f"the handle's geometry is {geometry}, this worker's is {spec.geometry}")
    if wanted != sorted(set(wanted)) or (wanted and wanted[-1] >= len(handle.blocks)):
        raise InvalidRequestError(f"block indices {wanted} of a handle of {len(handle.blocks)} blocks")
    sizes = {(handle.blocks[index].region, handle.blocks[index].length) for index in wanted}
    if sizes - {(HOST_REGION, spec.layout.block_bytes)}:
        raise TransferError(f"blocks of (region, bytes) {sorted(sizes)}, not of {spec.layout.block_bytes} bytes")
    if any(not block.HasField("checksum") for block in handle.blocks[: handle.ready_count]):
        raise TransferError("a block that is said to be ready has no checksum")
