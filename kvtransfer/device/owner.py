"""The owner's side: pages kept on the device for peers, and the `DeviceTransfer` service that grants them."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing

from jax import Array

from halfmoon.config import DEADLINES
from halfmoon.errors import DeadlineError, IncompatibleError, InvalidRequestError, StaleIncarnationError
from halfmoon.request import OutputToken
from halfmoon.v1 import devicetransfer_pb2 as pb
from halfmoon.v1 import devicetransfer_pb2_grpc as rpc
from halfmoon.v1 import kvtransfer_pb2
from halfmoon.wire import tokens_to_pb
from kvtransfer.core.recent import RecentSet
from kvtransfer.device.granting import Granting
from kvtransfer.device.layout import common_pieces, layout_from_pb, layout_to_pb
from kvtransfer.device.link import DeviceLink
from kvtransfer.device.pieces import Placement
from kvtransfer.device.shelf import Part, Shelf, Shelved
from kvtransfer.device.spec import DeviceSpec
from kvtransfer.rpc_types import Context

_HOUSEKEEPING_SECONDS = 0.5

_REMEMBERED = 4096
"""Handles that were read completely, of which their publishers may still want to know."""


class DeviceOwner(rpc.DeviceTransferServicer):
    """All calls are from the event loop that made it. Handles are those of the worker's data plane.

    Arrays that are added must never be donated or deleted: they are kept until every reader is done with them.
    """

    def __init__(self, spec: DeviceSpec, link: DeviceLink, placement: Placement) -> None:
        self._spec = spec
        self._link = link
        self._placement = placement
        self._shelf: Shelf[Array] = Shelf(spec.max_bytes, spec.lease_seconds, self._changed)
        self._grantings: set[Granting] = set()
        self._verdicts: dict[bytes, asyncio.Future[bool]] = {}
        self._read: RecentSet[bytes] = RecentSet(_REMEMBERED)
        self._housekeeping = asyncio.create_task(self._keep_house())

    @property
    def nbytes(self) -> int:
        """Device memory that is kept for readers, in bytes."""
        return self._shelf.nbytes

    @property
    def handle_count(self) -> int:
        """Handles that can be read."""
        return self._shelf.handle_count

    @property
    def fetch_count(self) -> int:
        """Readers that are served now."""
        return len(self._grantings)

    def open(self, handle_id: bytes, block_count: int, seconds: float) -> None:
        """Begins a handle whose pages will be complete in so many seconds. Raises InvalidRequestError when known."""
        self._shelf.open(handle_id, block_count, time.monotonic() + seconds)
        self._verdicts[handle_id] = asyncio.get_running_loop().create_future()

    def add(self, handle_id: bytes, first: int, arrays: Iterable[tuple[Array, int]]) -> None:
        """The next pages, from block `first` on: arrays [n, *page] with how many of the n count."""
        if first == 0:
            asyncio.get_running_loop().call_later(self._spec.claim_seconds, self._claim, handle_id)
        parts: list[Part[Array]] = []
        for blocks, count in arrays:
            parts.append(Part(first, count, blocks))
            first += count
        self._shelf.add(handle_id, parts)

    def seal(self, handle_id: bytes, first_tokens: Iterable[OutputToken]) -> None:
        """All pages were added; the lease starts."""
        seal = kvtransfer_pb2.KvSeal(first_tokens=tokens_to_pb(first_tokens))
        self._shelf.seal(handle_id, seal.SerializeToString(), time.monotonic())

    async def taken(self, handle_id: bytes) -> bool:
        """Whether a reader has taken everything from the device; waits until that is known, once for each handle.

        False comes as soon as nobody reads: no reader came in `claim_seconds`, or it left early, or the handle ended.
        """
        try:
            return await self._verdicts[handle_id]
        finally:
            self._verdicts.pop(handle_id, None)

    def was_taken(self, handle_id: bytes) -> bool:
        """Whether a reader has taken everything from the device, lately and until now."""
        return handle_id in self._read

    def drop(self, handle_id: bytes, reason: str) -> None:
        """Ends a handle; its readers are told the reason. Idempotent."""
        self._shelf.drop(handle_id, reason)
        self._verdicts.pop(handle_id, None)

    async def close(self) -> None:
        """Ends all handles; arrays that are lent stay until their grants run out."""
        self._shelf.close()
        self._housekeeping.cancel()
        await asyncio.gather(self._housekeeping, return_exceptions=True)

    async def Fetch(  # noqa: N802 - the name of the RPC
        self, request_iterator: AsyncIterator[pb.FetchRequest], context: Context
    ) -> AsyncGenerator[pb.FetchResponse, None]:
        """Shakes hands, grants, tells the seal; a handle that one reader has read completely is dropped."""
        opened = await self._open_of(request_iterator)
        entry = self._shelf.take(opened.handle_id)
        try:
            granting = self._granting(entry, opened, self._check(opened), context)
            yield pb.FetchResponse(welcome=self._welcome())
            async with aclosing(self._serve(granting, request_iterator)) as responses:
                async for response in responses:
                    yield response
            self._read.add(opened.handle_id)
            self._decide(opened.handle_id, taken=True)
            self._shelf.drop(opened.handle_id, "read completely")
        finally:
            self._shelf.give_back(entry, time.monotonic())
            self._decide(opened.handle_id, taken=False)

    async def _serve(
        self, granting: Granting, requests: AsyncIterator[pb.FetchRequest]
    ) -> AsyncGenerator[pb.FetchResponse, None]:
        self._grantings.add(granting)
        listening = asyncio.create_task(granting.listen(requests))
        try:
            async with aclosing(granting.grants()) as grants:
                async for grant in grants:
                    yield pb.FetchResponse(grant=grant)
            yield pb.FetchResponse(seal=kvtransfer_pb2.KvSeal.FromString(granting.entry.seal or b""))
            await granting.until_complete()
        finally:
            self._grantings.discard(granting)
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _open_of(self, requests: AsyncIterator[pb.FetchRequest]) -> pb.FetchOpen:
        try:
            first = await asyncio.wait_for(anext(aiter(requests), None), self._spec.control_seconds)
        except TimeoutError:
            raise DeadlineError("the reader does not shake hands in time") from None
        if first is None or not first.HasField("open"):
            raise InvalidRequestError("a fetch begins with its `open` message")
        return first.open

    def _check(self, opened: pb.FetchOpen) -> int:
        """Into how many pieces blocks are cut. Raises what refuses the reader, with both sides named."""
        spec = self._spec
        if opened.expected_incarnation != spec.incarnation:
            expected = opened.expected_incarnation
            raise StaleIncarnationError(f"the handle is of incarnation {expected:x}, this is {spec.incarnation:x}")
        if opened.model_fingerprint != spec.fingerprint:
            raise IncompatibleError(
                f"the reader's model is {opened.model_fingerprint}, the owner's is {spec.fingerprint}"
            )
        return common_pieces(spec.layout, layout_from_pb(opened.layout))

    def _granting(self, entry: Shelved[Array], opened: pb.FetchOpen, pieces: int, context: Context) -> Granting:
        wanted = sorted(set(opened.block_indices))
        if wanted and wanted[-1] >= entry.block_count:
            raise InvalidRequestError(f"blocks {wanted} of a handle of {entry.block_count}")
        seconds = min(context.time_remaining() or DEADLINES.request, DEADLINES.request)
        deadline = time.monotonic() + seconds
        return Granting(self._spec, self._link, self._placement, entry, wanted=wanted, pieces=pieces, deadline=deadline)

    def _welcome(self) -> pb.FetchWelcome:
        spec = self._spec
        return pb.FetchWelcome(
            worker_id=spec.worker_id,
            incarnation=spec.incarnation,
            layout=layout_to_pb(spec.layout),
            address=self._link.address,
        )

    def _claim(self, handle_id: bytes) -> None:
        """Who reads by now may still take everything; if nobody does, nobody will."""
        if not any(granting.entry.handle_id == handle_id for granting in self._grantings):
            self._decide(handle_id, taken=False)

    def _decide(self, handle_id: bytes, *, taken: bool) -> None:
        """The first verdict stands."""
        verdict = self._verdicts.get(handle_id)
        if verdict is not None and not verdict.done():
            verdict.set_result(taken)

    def _changed(self, entry: Shelved[Array]) -> None:
        if entry.failure:
            self._decide(entry.handle_id, taken=False)
        for granting in self._grantings:
            if granting.entry is entry:
                granting.look()

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(_HOUSEKEEPING_SECONDS)
            self._shelf.expire(time.monotonic())
            self._link.sweep()
