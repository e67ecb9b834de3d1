"""The reader's side: fetches pages of a peer's handle from its devices to this worker's."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
from jax import Array
from jax.errors import JaxRuntimeError

from halfmoon.errors import DeadlineError, StaleIncarnationError, TransferError
from halfmoon.request import OutputToken
from halfmoon.rpc import error_from_rpc, open_channel
from halfmoon.v1 import devicetransfer_pb2 as pb
from halfmoon.v1 import devicetransfer_pb2_grpc as rpc
from halfmoon.v1 import kvtransfer_pb2
from halfmoon.wire import token_from_pb
from kvtransfer.device.arrival import Arrivals
from kvtransfer.device.block_hash import hash_values
from kvtransfer.device.layout import common_pieces, layout_from_pb, layout_to_pb
from kvtransfer.device.link import DeviceLink
from kvtransfer.device.pieces import Placement
from kvtransfer.device.spec import DeviceSpec

FetchCall = grpc.aio.StreamStreamCall[pb.FetchRequest, pb.FetchResponse]


@dataclass(frozen=True, slots=True)
class FetchedPages:
    """`count` blocks of a handle from block `first` on, verified, at the front of `blocks` [n, *page].

    The rest of the array is padding. There may be blocks among them that were not asked for.
    """

    first: int
    count: int
    blocks: Array


@dataclass(frozen=True, slots=True)
class FetchedSeal:
    """Everything is here and the owner keeps nothing; `first_tokens` has one token for each choice, or none."""

    first_tokens: tuple[OutputToken, ...]


class DeviceReader:
    """Belongs to one event loop. Several fetches may run at once.

    `bytes_read` counts what arrived, padding included; `fetches_ended` counts fetches by "COMPLETE" and "FAILED".
    """

    def __init__(self, spec: DeviceSpec, link: DeviceLink, placement: Placement) -> None:
        self._spec = spec
        self._link = link
        self._placement = placement
        self._arrivals = Arrivals()
        self._active = 0
        self.bytes_read = 0
        self.fetches_ended: Counter[str] = Counter()

    @property
    def fetch_count(self) -> int:
        """Fetches under way."""
        return self._active

    @property
    def abandoned_count(self) -> int:
        """See `Arrivals.abandoned_count`."""
        return self._arrivals.abandoned_count

    async def fetch(
        self,
        handle: kvtransfer_pb2.KvHandle,
        wanted: Sequence[int],
        timeout: float,  # noqa: ASYNC109
    ) -> AsyncGenerator[FetchedPages | FetchedSeal, None]:
        """Yields arrays that hold the blocks `wanted`, ascending, as they become ready, and the seal at the end.

        All of it takes at most `timeout` seconds. No index means the seal alone. What was yielded stands, whatever
        comes after. Raises IncompatibleError with both sides named when pages can never be taken from there, and
        another HalfmoonError at any doubt: then the rest has to come in another way.
        Close the iterator (`contextlib.aclosing`) when leaving early.
        """
        deadline = time.monotonic() + timeout
        self._active += 1
        state = "FAILED"
        try:
            async with self._opened(handle, wanted, timeout) as (call, welcome):
                async for pages in self._pages(call, welcome, handle, set(wanted), deadline):
                    yield pages
                seal = await _sealed(call)
            state = "COMPLETE"
        finally:
            self._active -= 1
            self.fetches_ended[state] += 1
        yield seal

    async def _pages(
        self,
        call: FetchCall,
        welcome: pb.FetchWelcome,
        handle: kvtransfer_pb2.KvHandle,
        missing: set[int],
        deadline: float,
    ) -> AsyncGenerator[FetchedPages, None]:
        pieces = self._check(welcome, handle)
        while missing:
            response = await _read(call)
            if response is None or not response.HasField("grant"):
                raise TransferError(f"the owner grants no more, with {len(missing)} blocks missing")
            pages = await self._pull(welcome.address, response.grant, len(handle.blocks), pieces, deadline)
            await _say(call, pb.FetchRequest(done=pb.FetchDone(grant_id=response.grant.grant_id)))
            missing.difference_update(range(pages.first, pages.first + pages.count))
            self.bytes_read += pages.blocks.nbytes
            yield pages

    @asynccontextmanager
    async def _opened(
        self, handle: kvtransfer_pb2.KvHandle, wanted: Sequence[int], seconds: float
    ) -> "AsyncIterator[tuple[FetchCall, pb.FetchWelcome]]":
        opening = pb.FetchOpen(
            worker_id=self._spec.worker_id,
            expected_incarnation=handle.owner_incarnation,
            model_fingerprint=self._spec.fingerprint,
            layout=layout_to_pb(self._spec.layout),
            handle_id=handle.handle_id,
            block_indices=wanted,
        )
        async with open_channel(handle.device_endpoint) as channel:
            stub: rpc.DeviceTransferAsyncStub = rpc.DeviceTransferStub(channel)
            call = stub.Fetch(timeout=seconds)
            try:
                await _say(call, pb.FetchRequest(open=opening))
                yield call, await self._welcome(call)
            finally:
                call.cancel()

    async def _welcome(self, call: FetchCall) -> pb.FetchWelcome:
        try:
            first = await asyncio.wait_for(_read(call), self._spec.control_seconds)
        except TimeoutError:
            raise DeadlineError("the owner of the pages does not shake hands in time") from None
        if first is None or not first.HasField("welcome"):
            raise TransferError("the owner of the pages speaks something else")
        return first.welcome

    def _check(self, welcome: pb.FetchWelcome, handle: kvtransfer_pb2.KvHandle) -> int:
        if welcome.incarnation != handle.owner_incarnation:
            raise StaleIncarnationError(
                f"the handle is of incarnation {handle.owner_incarnation:x}, the owner is {welcome.incarnation:x}"
            )
        return common_pieces(layout_from_pb(welcome.layout), self._spec.layout)

    async def _pull(
        self, address: str, grant: pb.FetchGrant, block_count: int, pieces: int, deadline: float
    ) -> FetchedPages:
        first, count = grant.first_block, len(grant.hashes)
        if grant.pages not in self._spec.layout.page_counts or not 0 < count <= grant.pages:
            raise TransferError(f"a grant of {count} blocks in an array of {grant.pages}")
        if first + count > block_count:
            raise TransferError(f"a grant of blocks {first} to {first + count} of {block_count}")
        seconds = min(grant.ttl_ms / 1000, deadline - time.monotonic())
        specs = self._placement.specs(grant.pages, pieces)
        arrays = self._link.pull(address, grant.grant_id, specs, seconds)
        try:
            await self._arrivals.wait(arrays, time.monotonic() + seconds)
            blocks = await asyncio.to_thread(self._verified, arrays, grant.hashes)
        except (DeadlineError, TransferError):
            self._link.forget(address)
            raise
        return FetchedPages(first, count, blocks)

    def _verified(self, arrays: Sequence[Array], hashes: Sequence[int]) -> Array:
        """The blocks whose pieces have arrived. Raises TransferError unless their hashes are as the owner says."""
        try:
            blocks = self._placement.join(arrays)
            arrived = hash_values(blocks)
        except JaxRuntimeError as error:
            raise TransferError(f"the arrays of a grant did not arrive: {error}") from error
        differing = sum(ours != theirs for ours, theirs in zip(arrived, hashes, strict=False))
        if differing:
            raise TransferError(f"{differing} of {len(hashes)} blocks arrived with other bits than the owner has")
        return blocks


async def _sealed(call: FetchCall) -> FetchedSeal:
    """The seal, after the owner has heard that everything is here."""
    response = await _read(call)
    if response is None or not response.HasField("seal"):
        raise TransferError("the owner of the pages does not seal them")
    await _say(call, pb.FetchRequest(complete=pb.FetchComplete()))
    if await _read(call) is not None:
        raise TransferError("the owner of the pages goes on after their seal")
    return FetchedSeal(tuple(token_from_pb(token) for token in response.seal.first_tokens))


async def _read(call: FetchCall) -> pb.FetchResponse | None:
    """The next message; None at the end of a stream that ended well. Raises the domain error of another end."""
    try:
        response = await call.read()
    except grpc.aio.AioRpcError as error:
        raise error_from_rpc(error) from error
    return response if isinstance(response, pb.FetchResponse) else None


async def _say(call: FetchCall, request: pb.FetchRequest) -> None:
    """A call that has ended takes no more: how it ended is what the next read says.

    Where gRPC learns of the end in writing it forgets how the call ended, and says INTERNAL.
    """
    try:
        await call.write(request)
    except asyncio.InvalidStateError:
        return
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.INTERNAL:
            raise TransferError("the owner of the pages ended the fetch") from error
        raise error_from_rpc(error) from error
