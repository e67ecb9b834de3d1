"""The engine's side: the host pool that it maps, and the calls to its data-plane process."""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from halfmoon.errors import HalfmoonError, InvalidRequestError, TransferError
from halfmoon.request import OutputToken
from halfmoon.rpc import open_channel
from halfmoon.telemetry import trace_metadata
from halfmoon.v1 import kvtransfer_pb2 as pb
from halfmoon.v1 import kvtransfer_pb2_grpc as rpc
from halfmoon.wire import tokens_to_pb
from kvtransfer.calls import LOCAL_CALL_SECONDS, answer, domain_errors
from kvtransfer.events import PullComplete, PulledBlock, event_from_pb
from kvtransfer.process import PlaneProcess
from kvtransfer.proofs import new_handle_id
from kvtransfer.region import Region
from kvtransfer.settling import Settling
from kvtransfer.spec import PlaneSpec
from kvtransfer.store.client import StoreClient

_DRAIN_POLL = 0.05
"""Seconds between looks at what is still open."""


@dataclass(frozen=True, slots=True)
class _Delivery:
    """A block that the engine holds: `held` are the indices of all blocks of its pull that the engine holds."""

    held: set[int]
    block_index: int


class DataPlane:
    """One worker's data plane. All methods but `block` belong to the event loop that started it.

    Memory: a block of an offer is the engine's to write from `offer` until `seal` or `withdraw`: every offer must end
    in one of them, also when publishing failed. A pulled block is the engine's to read from the moment that `pull`
    yields it until `free_blocks`, also when the pull fails or is cancelled afterwards. An engine that copies lazily
    must have copied before it frees: the next transfer writes there.
    """

    def __init__(self, spec: PlaneSpec, region: Region, process: PlaneProcess) -> None:
        self._spec = spec
        self._region = region
        self._process = process
        self._channel = open_channel(process.address)
        self._stub: rpc.DataPlaneAsyncStub = rpc.DataPlaneStub(self._channel)
        self._settling = Settling()
        self._store = StoreClient(spec, self._stub, self._settling)
        self._deliveries: dict[int, _Delivery] = {}
        self._closed = False

    @classmethod
    async def start(cls, spec: PlaneSpec) -> Self:
        """Maps the host pool and starts the process.

        Raises ConfigError when the pool does not fit or the port is taken, UnavailableError when the process dies.
        """
        region = Region.create(spec.layout.total_bytes)
        try:
            process = await PlaneProcess.start(spec, region)
        except BaseException:
            region.close()
            raise
        region.close_fd()
        return cls(spec, region, process)

    @property
    def endpoint(self) -> str:
        """host:port of the `KvTransfer` service, as in the handles."""
        return self._process.endpoint

    @property
    def pid(self) -> int:
        """Of the data-plane process."""
        return self._process.pid

    @property
    def store(self) -> StoreClient:
        """The prefix store: pages found again by content hash."""
        return self._store

    @property
    def died(self) -> "asyncio.Future[int]":
        """Resolves with the exit code when the process has ended, for whatever reason."""
        return self._process.died

    def block(self, offset: int) -> NDArray[np.uint8]:
        """A writable view of the host block at byte `offset`: uint8 [block bytes], page-aligned."""
        return self._region.view(offset, self._spec.layout.block_bytes)

    async def offer(
        self,
        request_id: str,
        blocks: Sequence[pb.KvBlock],
        timeout: float,  # noqa: ASYNC109
        handle_id: bytes = b"",
    ) -> pb.KvHandle:
        """Reserves one host block for each of `blocks` (`content_hash` and `tokens` are read).

        `handle_id` is drawn unless given: whoever drew it can `withdraw` the offer without having seen it.

        Waits for free host blocks, first come first served; `timeout`, in seconds, bounds the wait and the time until
        `seal`. Raises InvalidRequestError when the pool can never hold so many, OverloadedError at the timeout.
        """
        request = pb.OfferRequest(
            request_id=request_id,
            blocks=blocks,
            timeout_ms=round(timeout * 1000),
            handle_id=handle_id or new_handle_id(),
        )
        try:
            call = self._stub.Offer(request, timeout=timeout + LOCAL_CALL_SECONDS, metadata=trace_metadata())
            response = await answer(call)
        except BaseException:
            self._settling.start(self._withdraw(request.handle_id, "the offer was given up"))
            raise
        return response.handle

    async def publish(self, handle_id: bytes, first_block: int, checksums: Iterable[int]) -> int:
        """Says that the next blocks are written, in order, with their `block_checksum`; returns how many are complete.

        Raises LeaseExpiredError when the handle has ended meanwhile: stop writing, then `withdraw`.
        """
        request = pb.PublishRequest(handle_id=handle_id, first_block=first_block, checksums=checksums)
        call = self._stub.Publish(request, timeout=LOCAL_CALL_SECONDS, metadata=trace_metadata())
        response = await answer(call)
        return response.ready_count

    async def seal(self, handle_id: bytes, first_tokens: Iterable[OutputToken]) -> None:
        """Completes a handle whose blocks are published: the lease starts. Raises LeaseExpiredError if it has ended."""
        request = pb.SealRequest(handle_id=handle_id, seal=pb.KvSeal(first_tokens=tokens_to_pb(first_tokens)))
        await answer(self._stub.Seal(request, timeout=LOCAL_CALL_SECONDS, metadata=trace_metadata()))

    async def withdraw(self, handle_id: bytes, reason: str) -> bool:
        """Ends a handle in any state, and says that nothing writes to its blocks any more; a reader is told `reason`.

        False when nothing was held under it. Idempotent; goes on when its caller is cancelled.
        """
        return await self._settling.run(self._withdraw(handle_id, reason))

    async def pull(
        self,
        request_id: str,
        handle: pb.KvHandle,
        block_indices: Sequence[int],
        timeout: float,  # noqa: ASYNC109
    ) -> AsyncGenerator[PulledBlock | PullComplete, None]:
        """Fetches blocks (`block_indices`, ascending) of a peer's handle as they become ready, in `timeout` seconds.

        Yields each block once, in any order, and PullComplete at the end; no index means the first tokens alone. Free
        blocks while the pull runs: it holds at most `PlaneSpec.pull_window` of them. Raises TransferError when
        anything is in doubt; then, as when the iterator is closed or its task cancelled, blocks not yielded come back
        by themselves. Close the iterator (`contextlib.aclosing`) when leaving early.
        """
        held: set[int] = set()
        pull_id = secrets.randbits(64) | 1
        request = pb.PullRequest(
            request_id=request_id,
            handle=handle,
            block_indices=block_indices,
            timeout_ms=round(timeout * 1000),
            pull_id=pull_id,
        )
        call = self._stub.Pull(request, timeout=timeout + LOCAL_CALL_SECONDS, metadata=trace_metadata())
        complete = False
        try:
            with domain_errors():
                async for response in call:
                    event = event_from_pb(response)
                    if isinstance(event, PulledBlock):
                        held.add(event.block_index)
                        self._deliveries[event.offset] = _Delivery(held, event.block_index)
                    else:
                        complete = True
                    yield event
        except HalfmoonError as error:
            raise _transfer_error(error) from error
        finally:
            if not complete:
                call.cancel()
                self._settling.start(self._end_pull(pull_id, held))
        if not complete:
            raise TransferError("the data plane ended the transfer without completing it")

    async def free_blocks(self, offsets: Iterable[int]) -> None:
        """Returns pulled blocks that the engine has read. Goes on when its caller is cancelled.

        Raises InvalidRequestError for blocks that the engine does not hold.
        """
        freed = list(offsets)
        strangers = [offset for offset in freed if offset not in self._deliveries]
        if strangers:
            raise InvalidRequestError(f"no pulled blocks at offsets {strangers}")
        await self._settling.run(self._free({offset: self._deliveries.pop(offset) for offset in freed}))

    async def stats(self) -> pb.StatsResponse:
        """Gauges and counters of the process."""
        return await answer(self._stub.Stats(pb.StatsRequest(), timeout=LOCAL_CALL_SECONDS))

    async def drained(self, timeout: float) -> bool:  # noqa: ASYNC109
        """Waits up to `timeout` seconds until no handle is open and no transfer runs; whether that is so now."""
        deadline = time.monotonic() + timeout
        while (stats := await self.stats()).handles_open or stats.transfers_active:
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(_DRAIN_POLL)
        return True

    async def close(self) -> None:
        """Ends the process and gives up the mapping, when the last view of a block is gone. Idempotent."""
        if self._closed:
            return
        self._closed = True
        await self._settling.close()
        await self._channel.close()
        await self._process.close()
        self._region.close()

    async def _withdraw(self, handle_id: bytes, reason: str) -> bool:
        request = pb.WithdrawRequest(handle_id=handle_id, reason=reason)
        response = await answer(self._stub.Withdraw(request, timeout=LOCAL_CALL_SECONDS))
        return response.withdrawn

    async def _free(self, deliveries: "dict[int, _Delivery]") -> None:
        """Until the call is done, the blocks count as held: returned twice, they could be somebody else's."""
        await answer(self._stub.FreeBlocks(pb.FreeBlocksRequest(offsets=deliveries), timeout=LOCAL_CALL_SECONDS))
        for delivery in deliveries.values():
            delivery.held.discard(delivery.block_index)

    async def _end_pull(self, pull_id: int, held: set[int]) -> None:
        request = pb.EndPullRequest(pull_id=pull_id, kept_blocks=held)
        await answer(self._stub.EndPull(request, timeout=LOCAL_CALL_SECONDS))


def _transfer_error(error: HalfmoonError) -> TransferError:
    return error if isinstance(error, TransferError) else TransferError(f"{error.reason}: {error.message}")
