"""Keeps a handle alive while its request waits for pages: the lease may run out before the first block is pulled."""

import asyncio

import grpc

from halfmoon.config import DEADLINES
from halfmoon.rpc import error_from_rpc, open_channel
from halfmoon.v1 import kvtransfer_pb2, kvtransfer_pb2_grpc


async def keep_lease(handle: kvtransfer_pb2.KvHandle) -> None:
    """Renews at a third of the lease until cancelled. Raises the domain error of a renewal that fails."""
    request = kvtransfer_pb2.RenewRequest(handle_id=handle.handle_id, expected_incarnation=handle.owner_incarnation)
    async with open_channel(handle.endpoint) as channel:
        stub: kvtransfer_pb2_grpc.KvTransferAsyncStub = kvtransfer_pb2_grpc.KvTransferStub(channel)
        while True:
            await asyncio.sleep(handle.lease_ms / 3000)
            try:
                await stub.Renew(request, timeout=DEADLINES.control)
            except grpc.aio.AioRpcError as error:
                raise error_from_rpc(error) from error
