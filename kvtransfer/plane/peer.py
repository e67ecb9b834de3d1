"""One owner process as this reader knows it: channel, transport, and the threads that read from it."""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, Self, TypeVar

import grpc

from halfmoon.errors import HalfmoonError, StaleIncarnationError
from halfmoon.rpc import error_from_rpc, open_channel
from halfmoon.v1 import kvtransfer_pb2 as pb
from halfmoon.v1 import kvtransfer_pb2_grpc as rpc
from halfmoon.wire import geometry_to_pb
from kvtransfer.plane.host import boot_id
from kvtransfer.region import Region
from kvtransfer.spec import PlaneSpec
from kvtransfer.transports.base import Transport
from kvtransfer.transports.choice import open_transport

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_log = logging.getLogger(__name__)


class Peer:
    """Threads of its own, so that a peer that hangs delays nobody else's reads."""

    def __init__(self, channel: grpc.aio.Channel, transport: Transport) -> None:
        self.channel = channel
        self.stub: rpc.KvTransferAsyncStub = rpc.KvTransferStub(channel)
        self.transport = transport
        self._threads = ThreadPoolExecutor(transport.streams, thread_name_prefix=f"read-{transport.name}")

    @classmethod
    async def connect(cls, spec: PlaneSpec, region: Region, endpoint: str, incarnation: int) -> Self:
        """Shakes hands with the process `incarnation` at `endpoint`.

        Raises StaleIncarnationError or IncompatibleError with both sides named, UnavailableError or DeadlineError.
        """
        channel = open_channel(endpoint)
        try:
            hello = await _hello(spec, channel, incarnation)
            transport = open_transport(hello.transports, connect_seconds=spec.connect_seconds)
        except BaseException:
            await channel.close()
            raise
        transport.register(region)
        _log.info("reads from a peer", extra={"peer": hello.worker_id, "transport": transport.name, "at": endpoint})
        return cls(channel, transport)

    def submit(
        self, work: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Future[Result]:
        """Runs blocking work for this peer, in the order given, `streams` at once."""
        return self._threads.submit(work, *args, **kwargs)

    async def close(self) -> None:
        """Gives everything up; when no read is under way."""
        self.transport.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        await self.channel.close()


async def _hello(spec: PlaneSpec, channel: grpc.aio.Channel, incarnation: int) -> pb.HelloResponse:
    request = pb.HelloRequest(
        worker_id=spec.worker_id,
        incarnation=spec.incarnation,
        boot_id=boot_id(),
        expected_incarnation=incarnation,
        model_fingerprint=spec.fingerprint,
        geometry=geometry_to_pb(spec.geometry),
        transports=spec.transports,
    )
    stub: rpc.KvTransferAsyncStub = rpc.KvTransferStub(channel)
    try:
        hello = await stub.Hello(request, timeout=spec.control_seconds)
    except grpc.aio.AioRpcError as error:
        raise _named(error_from_rpc(error)) from error
    if hello.incarnation != incarnation:
        raise StaleIncarnationError(f"the handle is of incarnation {incarnation:x}, the peer is {hello.incarnation:x}")
    return hello


def _named(error: HalfmoonError) -> HalfmoonError:
    return type(error)(f"handshake with the owner of the blocks: {error.message}")
