"""Connections to workers: one channel for each, and the streams that hang on it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Generic, Protocol, TypeVar, cast

import grpc

from halfmoon.config import DEADLINES, RETRY_AFTER
from halfmoon.errors import (
    CancelledError,
    HalfmoonError,
    InternalError,
    TransferError,
    UnavailableError,
    WorkerFailedError,
)
from halfmoon.rpc import error_from_rpc, open_channel
from halfmoon.telemetry import OpenSpan
from halfmoon.v1 import decode_pb2_grpc, kvtransfer_pb2, kvtransfer_pb2_grpc, prefill_pb2, prefill_pb2_grpc
from router.tasks import BackgroundTasks
from router.worker import Worker

Response = TypeVar("Response")
Response_co = TypeVar("Response_co", covariant=True)


class StreamCall(Protocol[Response_co]):
    """What is used of a gRPC call that streams responses; `read` gives `grpc.aio.EOF` at the end."""

    async def read(self) -> object | Response_co: ...

    def cancel(self) -> bool: ...


class Losable(Protocol):
    """A stream that can be told that its worker is gone."""

    def lose(self, reason: str) -> None: ...


class WorkerStream(Generic[Response]):
    """One streaming call to a worker, and its span. Its owner closes it, which cancels what has not ended."""

    def __init__(self, worker: Worker, link: "WorkerLink", call: StreamCall[Response], span: OpenSpan) -> None:
        self._worker = worker
        self._link = link
        self._call = call
        self._span = span
        self._lost: str | None = None
        link.streams.add(self)

    def __enter__(self) -> "WorkerStream[Response]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __aiter__(self) -> AsyncIterator[Response]:
        return self

    async def __anext__(self) -> Response:
        response = await self.read()
        if response is None:
            raise StopAsyncIteration
        return response

    async def read(self) -> Response | None:
        """The next response; None at the end. Raises WorkerFailedError when the worker broke, or what it reports."""
        try:
            response = await self._call.read()
        except grpc.aio.AioRpcError as error:
            failure = self._failure(error_from_rpc(error))
            self._span.end(failure)
            raise failure from error
        except asyncio.CancelledError:
            if self._lost is None or _cancelling():
                raise
            raise self._failed(self._lost) from None
        if response is grpc.aio.EOF:
            self._span.end()
            return None
        return cast("Response", response)

    def close(self) -> None:
        """Cancels the call; nothing happens when it has ended. Idempotent."""
        self._link.streams.discard(self)
        self._call.cancel()
        self._span.end()

    def lose(self, reason: str) -> None:
        """The worker is gone: whoever reads gets WorkerFailedError."""
        self._lost = reason
        self._call.cancel()

    def _failure(self, error: HalfmoonError) -> HalfmoonError:
        """What a failed call means to the client of the router."""
        if isinstance(error, UnavailableError | CancelledError | TransferError):
            if isinstance(error, UnavailableError):
                self._worker.suspect = True
            return self._failed(self._lost or error.message)
        if isinstance(error, InternalError):
            return InternalError(f"{self._name}: {error.message}")
        return error

    def _failed(self, reason: str) -> WorkerFailedError:
        return WorkerFailedError(f"{self._name} failed: {reason}", retry_after=RETRY_AFTER)

    @property
    def _name(self) -> str:
        return f"{self._worker.role.value} worker {self._worker.worker_id}"


class WorkerLink:
    """The channel to one incarnation of a worker, its stubs, and the streams under way."""

    def __init__(self, worker: Worker) -> None:
        self._channel = open_channel(worker.description.address)
        self._handle_channels: dict[str, grpc.aio.Channel] = {}
        self.prefill = prefill_pb2_grpc.PrefillStub(self._channel)
        self.decode = decode_pb2_grpc.DecodeStub(self._channel)
        self.streams: set[Losable] = set()

    async def release(self, endpoint: str, request: kvtransfer_pb2.ReleaseRequest) -> None:
        """Calls the worker's own KvTransfer service, which its data plane serves elsewhere."""
        channel = self._handle_channels.get(endpoint)
        if channel is None:
            channel = self._handle_channels[endpoint] = open_channel(endpoint)
        await kvtransfer_pb2_grpc.KvTransferStub(channel).Release(request, timeout=DEADLINES.control)

    async def withdraw(self, request: prefill_pb2.WithdrawPrefillRequest) -> None:
        """Asks the worker itself: where its data plane serves is not known without a handle."""
        await self.prefill.Withdraw(request, timeout=DEADLINES.control)

    async def close(self, reason: str) -> None:
        """Ends all streams with `reason`, then the channels."""
        for stream in list(self.streams):
            stream.lose(reason)
        for channel in (self._channel, *self._handle_channels.values()):
            await channel.close()


class Links:
    """All links, opened at first use. `drop` those of workers that are gone, and `close` at the end."""

    def __init__(self, tasks: BackgroundTasks) -> None:
        self._links: dict[Worker, WorkerLink] = {}
        self._tasks = tasks

    @property
    def open_streams(self) -> int:
        """Calls to workers that stream now."""
        return sum(len(link.streams) for link in list(self._links.values()))

    def of(self, worker: Worker) -> WorkerLink:
        """The link to a worker. Raises WorkerFailedError when it is gone."""
        link = self._links.get(worker)
        if worker.gone is not None:
            raise WorkerFailedError(f"worker {worker.worker_id} is gone: {worker.gone}", retry_after=RETRY_AFTER)
        if link is None:
            link = self._links[worker] = WorkerLink(worker)
        return link

    def drop(self, worker: Worker, reason: str) -> None:
        """Ends what still runs at a worker that is gone."""
        link = self._links.pop(worker, None)
        if link is not None:
            self._tasks.start(lambda: link.close(reason), "close a link", worker=worker.worker_id)

    def release(self, worker: Worker, handle: kvtransfer_pb2.KvHandle, request_id: str) -> None:
        """Gives a handle back to its owner, in the background; an owner that does not answer ends the lease itself."""
        link = self._links.get(worker)
        if link is not None:
            request = kvtransfer_pb2.ReleaseRequest(handle_id=handle.handle_id)
            self._tasks.start(
                lambda: link.release(handle.endpoint, request),
                "release a handle",
                request_id=request_id,
                worker=worker.worker_id,
            )

    def withdraw(self, worker: Worker, handle_id: bytes, request_id: str) -> None:
        """The same for a handle that was asked for and has not been seen: the prefill may have ended unheard."""
        link = self._links.get(worker)
        if link is not None:
            self._tasks.start(
                lambda: link.withdraw(prefill_pb2.WithdrawPrefillRequest(handle_id=handle_id)),
                "withdraw a handle",
                request_id=request_id,
                worker=worker.worker_id,
            )

    async def close(self) -> None:
        """Ends everything."""
        links, self._links = self._links, {}
        for link in links.values():
            await link.close("the router stops")


def _cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
