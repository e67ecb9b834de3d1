"""One owner process as this reader knows it: channel, transports, and the threads that read from it."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import grpc

from halfmoon.errors import HalfmoonError, StaleIncarnationError, TransferError
from halfmoon.rpc import error_from_rpc, open_channel
from halfmoon.v1 import kvtransfer_pb2 as pb
from halfmoon.v1 import kvtransfer_pb2_grpc as rpc
from halfmoon.wire import geometry_to_pb
from kvtransfer.plane.block_fetch import TransportFailedError, WantedBlock, fetch_blocks
from kvtransfer.plane.host import boot_id
from kvtransfer.plane.routes import RouteBook, Routes
from kvtransfer.plane.tasks import run_stoppable
from kvtransfer.region import Region
from kvtransfer.spec import PlaneSpec
from kvtransfer.transports.base import ReadKey, StopSignal, Transport
from kvtransfer.transports.choice import can_speak, open_transport, usable

MOST_STREAMS = 2
"""Of any transport."""


class Peer:
    """Threads of its own, so that a peer that hangs delays nobody else's reads."""

    def __init__(self, spec: PlaneSpec, region: Region, channel: grpc.aio.Channel, routes: Routes) -> None:
        self.channel = channel
        self.stub: rpc.KvTransferAsyncStub = rpc.KvTransferStub(channel)
        self._spec = spec
        self._region = region
        self._routes = routes
        self._threads = ThreadPoolExecutor(MOST_STREAMS, thread_name_prefix="read-peer")

    @classmethod
    async def connect(cls, spec: PlaneSpec, region: Region, book: RouteBook, endpoint: str, incarnation: int) -> Self:
        """Shakes hands with the process `incarnation` at `endpoint`.

        Raises StaleIncarnationError or IncompatibleError with both sides named, UnavailableError or DeadlineError.
        """
        channel = open_channel(endpoint)

        def open_one(offered: pb.TransportEndpoint) -> Transport:
            transport = open_transport(offered, connect_seconds=spec.connect_seconds, host=spec.peer_host)
            transport.register(region)
            return transport

        try:
            hello = await _hello(spec, channel, incarnation)
            routes = Routes(book, (endpoint, incarnation), usable(hello.transports), open_one)
        except BaseException:
            await channel.close()
            raise
        return cls(spec, region, channel, routes)

    @property
    def streams(self) -> int:
        """Batches that may be fetched at once to advantage."""
        transport = self._routes.choose()
        return transport.streams if transport is not None else 1

    async def fetch(self, key: ReadKey, batch: Sequence[WantedBlock], *, deadline: float) -> str:
        """Brings the blocks into place over the best transport; which it was. Errors as of `fetch_blocks`.

        One that fails is left for the next at once, unless it has used up the time. Cancelled or failed, it returns
        only when nothing writes to the blocks any more.
        """
        failed: list[str] = []
        error = TransferError("no transport is left")
        while (transport := self._routes.choose(failed)) is not None:
            try:
                await self._fetch_over(transport, key, batch, deadline)
            except TransportFailedError as failure:
                self._routes.failed(transport.name)
                failed.append(transport.name)
                error = failure
                if failure.timed_out:
                    break
            else:
                self._routes.worked(transport.name)
                return transport.name
        raise error

    async def close(self) -> None:
        """Gives everything up; when no read is under way."""
        self._routes.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        await self.channel.close()

    async def _fetch_over(
        self, transport: Transport, key: ReadKey, batch: Sequence[WantedBlock], deadline: float
    ) -> None:
        stop = StopSignal()
        job = self._threads.submit(
            fetch_blocks,
            transport,
            self._region,
            key,
            batch,
            read_seconds=self._spec.read_seconds,
            deadline=deadline,
            stop=stop,
        )
        await run_stoppable(job, stop)


async def _hello(spec: PlaneSpec, channel: grpc.aio.Channel, incarnation: int) -> pb.HelloResponse:
    request = pb.HelloRequest(
        worker_id=spec.worker_id,
        incarnation=spec.incarnation,
        boot_id=boot_id(),
        expected_incarnation=incarnation,
        model_fingerprint=spec.fingerprint,
        geometry=geometry_to_pb(spec.geometry),
        transports=[name for name in spec.transports if can_speak(name)],
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
