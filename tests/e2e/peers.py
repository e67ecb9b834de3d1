"""Peers in the test's process: they speak the protos with the programs of a real fleet, and not always the truth."""

# ruff: noqa: N802 - methods are named by the protos

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any, TypeVar

import grpc

from halfmoon.cache.hashing import cache_salt, page_hashes
from halfmoon.errors import OverloadedError
from halfmoon.rpc import GrpcServer, RegistrationAgent, WorkerReport, error_from_rpc, open_channel
from halfmoon.v1 import (
    decode_pb2,
    decode_pb2_grpc,
    kvtransfer_pb2,
    kvtransfer_pb2_grpc,
    prefill_pb2,
    prefill_pb2_grpc,
    router_pb2,
    router_pb2_grpc,
)
from halfmoon.wire import geometry_from_pb
from tests.e2e.fleet import Fleet
from tests.kvtransfer.proxy import Fault, Proxy

Response = TypeVar("Response")
Context = grpc.aio.ServicerContext[Any, Any]

FIRST_CHOICE = "a"
"""Ids that begin so are taken first by a router to which all workers cost the same."""

_CALL_SECONDS = 60.0


async def registered(fleet: Fleet) -> dict[str, router_pb2.WorkerInfo]:
    """The workers that the router knows, by id."""
    async with open_channel(fleet.program("router").address) as channel:
        stub = router_pb2_grpc.WorkerRegistryStub(channel)
        listed = await stub.ListWorkers(router_pb2.ListWorkersRequest(), timeout=5)
    return {worker.info.worker_id: worker.info for worker in listed.workers}


async def back(fleet: Fleet, ended: router_pb2.WorkerInfo, seconds: float = 120.0) -> None:
    """Waits until a worker that has ended takes requests again, as another incarnation."""
    deadline = time.monotonic() + seconds
    while True:
        info = (await registered(fleet)).get(ended.worker_id, ended)
        if info.incarnation != ended.incarnation and info.state == router_pb2.WORKER_STATE_READY:
            return
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)


class PassingOwner(kvtransfer_pb2_grpc.KvTransferServicer):
    """Passes on what readers ask of a real owner; the blocks themselves come through `proxy`, over TCP."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.address = ""
        self.proxy: Proxy | None = None
        self._stack = AsyncExitStack()
        self._owner: kvtransfer_pb2_grpc.KvTransferAsyncStub | None = None

    async def take(self, handle: kvtransfer_pb2.KvHandle) -> None:
        """From now on, readers of this handle come here."""
        if self._owner is None:
            channel = await self._stack.enter_async_context(open_channel(handle.endpoint))
            self._owner = kvtransfer_pb2_grpc.KvTransferStub(channel)
        handle.endpoint = self.address

    async def holding(self) -> None:
        """Waits until the proxy keeps back what follows in a block."""
        await until(lambda: self.proxy is not None and self.proxy.holding.is_set(), seconds=20)

    def resume(self) -> None:
        """Lets it go."""
        assert self.proxy is not None
        self.proxy.resume()

    def heal(self) -> None:
        """New connections have no fault."""
        self.fault = Fault()
        if self.proxy is not None:
            self.proxy.fault = self.fault

    async def close(self) -> None:
        """Cuts all connections."""
        await self._stack.aclose()

    async def Hello(self, request: kvtransfer_pb2.HelloRequest, context: Context) -> kvtransfer_pb2.HelloResponse:
        hello = await _passed_on(self.owner.Hello(request, timeout=_CALL_SECONDS))
        tcp = next(each for each in hello.transports if each.name == "tcp")
        if self.proxy is None:
            self.proxy = Proxy(tcp.address)
            self.proxy.fault = self.fault
            self._stack.callback(self.proxy.close)
        del hello.transports[:]
        hello.transports.add(name="tcp", address=self.proxy.address)
        return hello

    async def Watch(
        self, request: kvtransfer_pb2.WatchRequest, context: Context
    ) -> AsyncIterator[kvtransfer_pb2.WatchResponse]:
        async with aclosing(_stream(self.owner.Watch(request, timeout=_CALL_SECONDS))) as responses:
            async for response in responses:
                yield response

    async def Renew(self, request: kvtransfer_pb2.RenewRequest, context: Context) -> kvtransfer_pb2.RenewResponse:
        return await _passed_on(self.owner.Renew(request, timeout=_CALL_SECONDS))

    async def Release(self, request: kvtransfer_pb2.ReleaseRequest, context: Context) -> kvtransfer_pb2.ReleaseResponse:
        return await _passed_on(self.owner.Release(request, timeout=_CALL_SECONDS))

    async def Acquire(self, request: kvtransfer_pb2.AcquireRequest, context: Context) -> kvtransfer_pb2.AcquireResponse:
        return await _passed_on(self.owner.Acquire(request, timeout=_CALL_SECONDS))

    @property
    def owner(self) -> "kvtransfer_pb2_grpc.KvTransferAsyncStub":
        assert self._owner is not None
        return self._owner


class LyingOwner(PassingOwner):
    """Says of a handle that it is alive, with the checksums that it had, whatever has become of it."""

    def __init__(self, last: kvtransfer_pb2.WatchResponse) -> None:
        super().__init__(Fault())
        self._last = last

    async def Watch(
        self, request: kvtransfer_pb2.WatchRequest, context: Context
    ) -> AsyncIterator[kvtransfer_pb2.WatchResponse]:
        yield self._last

    async def Renew(self, request: kvtransfer_pb2.RenewRequest, context: Context) -> kvtransfer_pb2.RenewResponse:
        return kvtransfer_pb2.RenewResponse(lease_ms=30_000)


class Relay(PassingOwner, prefill_pb2_grpc.PrefillServicer):
    """A prefill worker that has another do the work; readers of one prompt's blocks have to come by here.

    The first time they meet the fault; when the prompt is prefilled again, they do not.
    """

    def __init__(self, worker: router_pb2.WorkerInfo, prompt: Sequence[int], fault: Fault) -> None:
        super().__init__(fault)
        self.prompt = list(prompt)
        self.prefills = 0
        self._worker = worker

    async def Prefill(
        self, request: prefill_pb2.PrefillRequest, context: Context
    ) -> AsyncIterator[prefill_pb2.PrefillResponse]:
        concerned = list(request.prompt_token_ids) == self.prompt
        self.prefills += concerned
        if self.prefills > 1:
            self.heal()
        async with open_channel(self._worker.address) as channel:
            call = prefill_pb2_grpc.PrefillStub(channel).Prefill(request, timeout=_CALL_SECONDS)
            async with aclosing(_stream(call)) as responses:
                async for response in responses:
                    if concerned and response.accepted.HasField("handle"):
                        await self.take(response.accepted.handle)
                    yield response

    async def Withdraw(
        self, request: prefill_pb2.WithdrawPrefillRequest, context: Context
    ) -> prefill_pb2.WithdrawPrefillResponse:
        async with open_channel(self._worker.address) as channel:
            call = prefill_pb2_grpc.PrefillStub(channel).Withdraw(request, timeout=_CALL_SECONDS)
            return await _passed_on(call)

    def stored(self) -> list[bytes]:
        """Says that it has the pages of the prompt, so that a router sends that here."""
        geometry = geometry_from_pb(self._worker.geometry)
        salt = cache_salt(self._worker.model_fingerprint, geometry.dtype, geometry.page_size)
        return page_hashes(salt, self.prompt, geometry.page_size)


class Refuser(decode_pb2_grpc.DecodeServicer):
    """A decode worker that takes nothing in, though the router was told otherwise."""

    def __init__(self) -> None:
        self.refused = 0

    async def Generate(
        self, request: decode_pb2.DecodeRequest, context: Context
    ) -> AsyncIterator[decode_pb2.DecodeResponse]:
        self.refused += 1
        if self.refused:
            raise OverloadedError("no room here", retry_after=1.0)
        yield decode_pb2.DecodeResponse()

    async def StopChoices(
        self, request: decode_pb2.StopChoicesRequest, context: Context
    ) -> decode_pb2.StopChoicesResponse:
        return decode_pb2.StopChoicesResponse()


@asynccontextmanager
async def serving_owner(owner: PassingOwner) -> AsyncIterator[PassingOwner]:
    """Readers can come while inside."""
    server = GrpcServer()
    server.add(kvtransfer_pb2_grpc.add_KvTransferServicer_to_server, owner, "halfmoon.v1.KvTransfer")
    await server.start()
    owner.address = f"127.0.0.1:{server.port}"
    try:
        yield owner
    finally:
        await owner.close()
        await server.stop()


@asynccontextmanager
async def joined_prefill(fleet: Fleet, relay: Relay) -> AsyncIterator[Relay]:
    """The relay is the fleet's first prefill worker while inside."""
    server = GrpcServer()
    server.add(prefill_pb2_grpc.add_PrefillServicer_to_server, relay, "halfmoon.v1.Prefill")
    server.add(kvtransfer_pb2_grpc.add_KvTransferServicer_to_server, relay, "halfmoon.v1.KvTransfer")
    async with _joined(fleet, server, "prefill", relay.stored()) as address:
        relay.address = address
        try:
            yield relay
        finally:
            await relay.close()


@asynccontextmanager
async def joined_decode(fleet: Fleet, worker: Refuser) -> AsyncIterator[Refuser]:
    """It is the fleet's first decode worker while inside."""
    server = GrpcServer()
    server.add(decode_pb2_grpc.add_DecodeServicer_to_server, worker, "halfmoon.v1.Decode")
    async with _joined(fleet, server, "decode"):
        yield worker


@asynccontextmanager
async def _joined(fleet: Fleet, server: GrpcServer, role: str, stored: Sequence[bytes] = ()) -> AsyncIterator[str]:
    await server.start()
    info = router_pb2.WorkerInfo()
    info.CopyFrom((await registered(fleet))[f"{role}-0"])
    info.worker_id, info.incarnation = f"{FIRST_CHOICE}-{role}", secrets.randbits(64) | 1
    info.address = f"127.0.0.1:{server.port}"
    agent = RegistrationAgent([fleet.program("router").address], info, lambda: _report(stored))
    agent.start()
    try:
        await until(lambda: agent.registered and not agent.refusals)
        agent.wake()
        await asyncio.sleep(0.2)
        yield info.address
    finally:
        await agent.close()
        await server.stop()


def _report(stored: Sequence[bytes]) -> WorkerReport:
    load = router_pb2.WorkerLoad(pages_total=10_000, pages_free=10_000)
    return WorkerReport(router_pb2.WORKER_STATE_READY, load, stored)


async def until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    """Fails unless `condition()` holds within so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def _passed_on(call: Awaitable[Response]) -> Response:
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise error_from_rpc(error) from error


async def _stream(call: "grpc.aio.UnaryStreamCall[Any, Response]") -> AsyncGenerator[Response, None]:
    """What a call answers; it is cancelled when this is closed."""
    try:
        async for response in call:
            yield response
    except grpc.aio.AioRpcError as error:
        raise error_from_rpc(error) from error
    finally:
        call.cancel()
