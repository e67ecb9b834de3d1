"""Keeps a handle alive while its request waits for pages: the lease may run out before the first block is pulled."""

from halfmoon.rpc import open_channel
from halfmoon.v1 import kvtransfer_pb2, kvtransfer_pb2_grpc
from kvtransfer import keep_lease


async def keep_lease_of(handle: kvtransfer_pb2.KvHandle) -> None:
    """Renews over a connection of its own until cancelled; errors as of `kvtransfer.keep_lease`."""
    async with open_channel(handle.endpoint) as channel:
        await keep_lease(kvtransfer_pb2_grpc.KvTransferStub(channel), handle)
