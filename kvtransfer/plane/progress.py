"""What a reader knows of a handle that its owner is still filling."""

import asyncio
from collections.abc import Sequence

import grpc

from halfmoon.errors import LeaseExpiredError, StaleIncarnationError, TransferError
from halfmoon.rpc import error_from_rpc
from halfmoon.v1 import kvtransfer_pb2 as pb
from kvtransfer.plane.peer import Peer
from kvtransfer.transports.base import ReadKey


class HandleProgress:
    """Checksums as they become known, from the front, and the seal. Followed by `follow` in a task of its own."""

    def __init__(self, handle: pb.KvHandle) -> None:
        self._key = ReadKey(handle.handle_id, handle.owner_incarnation)
        self._checksums = [block.checksum for block in handle.blocks[: handle.ready_count]]
        self._block_count = len(handle.blocks)
        self._seal: pb.KvSeal | None = None
        self._changed = asyncio.Condition()

    @property
    def ready_count(self) -> int:
        """Blocks that can be read, from the front."""
        return len(self._checksums)

    def checksum(self, block: int) -> int:
        """Of a ready block."""
        return self._checksums[block]

    async def wait_ready(self, block: int) -> None:
        """Returns when block `block` of the handle can be read."""
        async with self._changed:
            await self._changed.wait_for(lambda: block < self.ready_count)

    async def wait_sealed(self) -> pb.KvSeal:
        """The seal, once there is one."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._seal is not None)
        return self._seal or pb.KvSeal()

    async def follow(self, peer: Peer) -> None:
        """Watches the handle until it is sealed. Raises LeaseExpiredError when it ends without, or TransferError."""
        request = pb.WatchRequest(
            handle_id=self._key.handle_id, expected_incarnation=self._key.incarnation, known_ready=self.ready_count
        )
        call = peer.stub.Watch(request)
        try:
            async for response in call:
                await self._learn(response)
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error) from error
        finally:
            call.cancel()
        if self._seal is None:
            raise TransferError("the owner ended the watch without seal or reason")

    async def _learn(self, response: pb.WatchResponse) -> None:
        if response.incarnation != self._key.incarnation:
            raise StaleIncarnationError(
                f"the handle is of incarnation {self._key.incarnation:x}, the owner is {response.incarnation:x}"
            )
        if response.failure:
            raise LeaseExpiredError(f"the owner ended the handle: {response.failure}")
        self._extend(response.checksums, response.ready_count)
        if response.HasField("seal"):
            if self.ready_count != self._block_count:
                raise TransferError(f"sealed with {self.ready_count} of {self._block_count} blocks")
            self._seal = response.seal
        async with self._changed:
            self._changed.notify_all()

    def _extend(self, checksums: Sequence[int], ready_count: int) -> None:
        self._checksums += checksums
        if self.ready_count != ready_count or ready_count > self._block_count:
            raise TransferError(f"{self.ready_count} checksums for {ready_count} of {self._block_count} blocks")
