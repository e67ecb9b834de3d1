"""Keeps a handle alive while its request waits for pages: the lease may run out before the first block is pulled."""

from contextlib import suppress

import grpc

from halfmoon.config import DEADLINES
from halfmoon.rpc import open_channel
from halfmoon.v1 import kvtransfer_pb2, kvtransfer_pb2_grpc
from kvtransfer import keep_lease


async def keep_lease_of(handle: kvtransfer_pb2.KvHandle) -> None:
    """Renews over a connection of its own until cancelled; errors as of `kvtransfer.keep_lease`."""
    async with open_channel(handle.endpoint) as channel:
        await keep_lease(kvtransfer_pb2_grpc.KvTransferStub(channel), handle)


async def release(handle: kvtransfer_pb2.KvHandle) -> None:
    """Ends a handle that is read no more; when its owner cannot be told, its lease runs out."""
    request = kvtransfer_pb2.ReleaseRequest(handle_id=handle.handle_id)
    async with open_channel(handle.endpoint) as channel:
        stub: kvtransfer_pb2_grpc.KvTransferAsyncStub = kvtransfer_pb2_grpc.KvTransferStub(channel)
        with suppress(grpc.aio.AioRpcError):
            await stub.Release(request, timeout=DEADLINES.control)
