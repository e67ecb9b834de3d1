"""Keeping a handle alive from the reader's side."""

import asyncio

import grpc

from halfmoon.config import DEADLINES
from halfmoon.rpc import error_from_rpc
from halfmoon.v1 import kvtransfer_pb2 as pb
from halfmoon.v1 import kvtransfer_pb2_grpc as rpc

_LEAST_SECONDS = 0.02
"""Between two renewals, however short a lease a handle claims to have."""


async def keep_lease(
    stub: "rpc.KvTransferAsyncStub", handle: pb.KvHandle, *, control_seconds: float = DEADLINES.control
) -> None:
    """Renews at a third of the lease until cancelled. Raises LeaseExpiredError, or when the owner is silent."""
    request = pb.RenewRequest(handle_id=handle.handle_id, expected_incarnation=handle.owner_incarnation)
    while True:
        await asyncio.sleep(max(handle.lease_ms / 3000, _LEAST_SECONDS))
        try:
            await stub.Renew(request, timeout=control_seconds)
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error) from error
