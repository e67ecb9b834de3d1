"""One pull: from the handshake with the owner to the release of its handle."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import grpc
from opentelemetry.trace import SpanKind

from halfmoon.errors import HalfmoonError, TransferError
from halfmoon.rpc import error_from_rpc
from halfmoon.telemetry import FieldLogger, OpenSpan
from halfmoon.telemetry import conventions as names
from halfmoon.v1 import kvtransfer_pb2 as pb
from kvtransfer.core.transfer import Transfer, TransferState
from kvtransfer.lease import keep_lease
from kvtransfer.plane.context import PlaneContext
from kvtransfer.plane.peer import Peer
from kvtransfer.plane.progress import HandleProgress
from kvtransfer.plane.reader import BlockReader
from kvtransfer.plane.tasks import first_error_group, let_go, wait_done

_log = logging.getLogger(__name__)

_LEAST_SECONDS = 0.05
"""For telling the owner at the very end of a transfer's time."""


class Pull:
    """Runs from when it is made until `stopped`; `events` tells what has arrived."""

    def __init__(self, context: PlaneContext, request: pb.PullRequest) -> None:
        now = time.monotonic()
        deadline = now + request.timeout_ms / 1000
        handshake = context.spec.connect_seconds + context.spec.control_seconds
        self.transfer = Transfer(frozenset(request.block_indices), min(now + handshake, deadline), deadline)
        self._context = context
        self._request = request
        self._log = FieldLogger(_log, request_id=request.request_id)
        self._span = OpenSpan("transfer", {names.REQUEST_ID: request.request_id}, kind=SpanKind.SERVER)
        self._reader = BlockReader(context, self.transfer, request, self._deliver)
        self._events: asyncio.Queue[pb.PullResponse | None] = asyncio.Queue()
        self._error: Exception | None = None
        self.task = asyncio.create_task(self._run())
        self.task.add_done_callback(lambda _: self._end())

    async def events(self) -> AsyncGenerator[pb.PullResponse, None]:
        """Blocks as they are verified, and the completion. Raises what the pull failed with."""
        while (event := await self._events.get()) is not None:
            yield event
        if self._error is not None:
            raise self._error

    async def stop(self) -> None:
        """Cancels what still runs; returns when nothing is written any more."""
        self.task.cancel()
        await wait_done(self.task)

    def window_moved(self) -> None:
        """The engine has freed blocks of this pull."""
        self._reader.window_moved()

    async def _run(self) -> None:
        try:
            complete = await self._move()
            self.transfer.complete()
            self._end_span(complete)
            self._events.put_nowait(pb.PullResponse(complete=complete))
        except asyncio.CancelledError:
            self.transfer.cancel()
        except HalfmoonError as error:
            self._fail(error, error.message)
        except Exception as error:  # noqa: BLE001 - whatever it is, it goes to the engine and to the log there
            self._fail(error, repr(error))

    async def _move(self) -> pb.PullComplete:
        handle = self._request.handle
        async with AsyncExitStack() as stack:
            async with self._bounded():
                use = self._context.peers.use(handle.endpoint, handle.owner_incarnation)
                peer = await stack.enter_async_context(use)
            self.transfer.begin()
            async with self._bounded():
                seal = await self._receive(peer)
            await self._release(peer)
            return self._summary(seal)

    async def _receive(self, peer: Peer) -> pb.KvSeal:
        """All blocks and the seal, while the lease is kept."""
        handle = self._request.handle
        progress = HandleProgress(handle)
        async with first_error_group() as group:
            helpers = [
                group.create_task(progress.follow(peer)),
                group.create_task(keep_lease(peer.stub, handle, control_seconds=self._context.spec.control_seconds)),
            ]
            await self._reader.run(peer, progress)
            seal = await progress.wait_sealed()
            for helper in helpers:
                helper.cancel()
        return seal

    async def _release(self, peer: Peer) -> None:
        """Everything is here already: when the owner cannot be told in time, its lease runs out."""
        request = pb.ReleaseRequest(handle_id=self._request.handle.handle_id)
        left = max(self.transfer.deadline - time.monotonic(), _LEAST_SECONDS)
        try:
            await peer.stub.Release(request, timeout=min(left, self._context.spec.control_seconds))
        except grpc.aio.AioRpcError as error:
            self._log.warning("handle not released", extra={"error": error_from_rpc(error).message})

    @asynccontextmanager
    async def _bounded(self) -> AsyncIterator[None]:
        """The deadline of the present state."""
        try:
            async with asyncio.timeout(self.transfer.state_deadline - time.monotonic()):
                yield
        except TimeoutError:
            self.transfer.run_out()
            raise TransferError(f"the transfer was {self.transfer.reason}") from None

    def _deliver(self, block_index: int, offset: int) -> None:
        self._events.put_nowait(pb.PullResponse(block=pb.PulledBlock(block_index=block_index, offset=offset)))

    def _summary(self, seal: pb.KvSeal) -> pb.PullComplete:
        moved = len(self.transfer.verified)
        began = self._reader.began
        return pb.PullComplete(
            seal=seal,
            bytes=moved * self._context.spec.layout.block_bytes,
            transport=self._reader.transport,
            seconds=0.0 if began is None else self._reader.ended - began,
        )

    def _end_span(self, complete: pb.PullComplete) -> None:
        """Before the engine hears of it, so that its own span, which began earlier, ends later."""
        self._span.set({names.KV_BYTES: complete.bytes, names.KV_TRANSPORT: complete.transport})
        self._span.set({names.KV_PAGES: len(self.transfer.verified)})
        self._span.end()

    def _fail(self, error: Exception, reason: str) -> None:
        let_go(error)
        self._error = error
        self.transfer.fail(reason)

    def _end(self) -> None:
        """However the task ended, and also when it was cancelled before its first step."""
        transfer = self.transfer
        transfer.cancel()
        self._span.set({names.KV_PAGES: len(transfer.verified)})
        self._span.end(self._error or asyncio.CancelledError())
        self._context.meters.ended[transfer.state.value] += 1
        self._events.put_nowait(None)
        level = logging.WARNING if transfer.state is TransferState.FAILED else logging.DEBUG
        fields = {"state": transfer.state.value, "blocks": len(transfer.verified), "reason": transfer.reason or None}
        self._log.log(level, "pull ended", extra=fields)
