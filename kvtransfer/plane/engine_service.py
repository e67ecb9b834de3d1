"""The `DataPlane` service: what the engine asks its own data plane, over a private socket."""

from collections.abc import AsyncIterator

from halfmoon.errors import InvalidRequestError
from halfmoon.v1 import kvtransfer_pb2 as pb
from halfmoon.v1 import kvtransfer_pb2_grpc as rpc
from kvtransfer.core.content_log import ContentLog
from kvtransfer.plane.context import PlaneContext
from kvtransfer.plane.handle_message import handle_message
from kvtransfer.plane.owner import Owner
from kvtransfer.plane.prefix_store import PrefixStore
from kvtransfer.plane.pulls import PullBook
from kvtransfer.plane.store_messages import require_hashes, tier_stats
from kvtransfer.proofs import HANDLE_ID_BYTES
from kvtransfer.rpc_types import Context


class EngineService(rpc.DataPlaneServicer):
    """`endpoint` is the address of this process's `KvTransfer` service."""

    def __init__(self, context: PlaneContext, owner: Owner, pulls: PullBook, store: PrefixStore, endpoint: str) -> None:
        self._context = context
        self._owner = owner
        self._pulls = pulls
        self._store = store
        self._endpoint = endpoint
        self._contents = ContentLog()

    async def Offer(self, request: pb.OfferRequest, context: Context) -> pb.OfferResponse:  # noqa: N802
        """Reserves host blocks under a new handle."""
        if len(request.handle_id) != HANDLE_ID_BYTES or not request.blocks:
            raise InvalidRequestError(f"{len(request.blocks)} blocks under an id of {len(request.handle_id)} bytes")
        handle = await self._owner.offer(
            request.handle_id, request.request_id, len(request.blocks), request.timeout_ms / 1000
        )
        pages = ((block.content_hash, block.tokens) for block in request.blocks)
        return pb.OfferResponse(handle=handle_message(self._context.spec, self._endpoint, handle, pages))

    async def Publish(self, request: pb.PublishRequest, context: Context) -> pb.PublishResponse:  # noqa: N802
        """Marks the next blocks as complete."""
        ready = self._owner.publish(request.handle_id, request.first_block, request.checksums)
        return pb.PublishResponse(ready_count=ready)

    async def Seal(self, request: pb.SealRequest, context: Context) -> pb.SealResponse:  # noqa: N802
        """Completes a handle; its lease starts."""
        self._owner.seal(request.handle_id, request.seal.SerializeToString())
        return pb.SealResponse()

    async def Withdraw(self, request: pb.WithdrawRequest, context: Context) -> pb.WithdrawResponse:  # noqa: N802
        """Ends a handle."""
        return pb.WithdrawResponse(withdrawn=self._owner.withdraw(request.handle_id, request.reason))

    async def Pull(self, request: pb.PullRequest, context: Context) -> AsyncIterator[pb.PullResponse]:  # noqa: N802
        """Streams blocks as they are verified."""
        pull = self._pulls.start(request)
        try:
            async for event in pull.events():
                yield event
        finally:
            await pull.stop()

    async def EndPull(self, request: pb.EndPullRequest, context: Context) -> pb.EndPullResponse:  # noqa: N802
        """Settles a pull."""
        return pb.EndPullResponse(returned=await self._pulls.settle(request.pull_id, request.kept_blocks))

    async def FreeBlocks(self, request: pb.FreeBlocksRequest, context: Context) -> pb.FreeBlocksResponse:  # noqa: N802
        """Returns delivered blocks."""
        self._pulls.free(request.offsets)
        return pb.FreeBlocksResponse()

    async def BeginPut(self, request: pb.BeginPutRequest, context: Context) -> pb.BeginPutResponse:  # noqa: N802
        """Reserves host blocks for pages."""
        require_hashes(request.hashes)
        layout = self._context.spec.layout
        blocks = self._store.begin_put(request.put_id, request.hashes)
        places = [pb.StorePlace(content_hash=each, offset=layout.offset(block)) for each, block in blocks.items()]
        return pb.BeginPutResponse(places=places)

    async def EndPut(self, request: pb.EndPutRequest, context: Context) -> pb.EndPutResponse:  # noqa: N802
        """Stores pages, or gives them up."""
        checksums = {page.content_hash: page.checksum if page.HasField("checksum") else None for page in request.pages}
        self._store.end_put(request.put_id, checksums, give_up_rest=request.give_up_rest)
        return pb.EndPutResponse()

    async def AcquireStored(  # noqa: N802
        self, request: pb.AcquireStoredRequest, context: Context
    ) -> pb.AcquireStoredResponse:
        """Pins stored pages."""
        require_hashes(request.hashes)
        spec = self._context.spec
        run = await self._store.acquire(request.lease_id, request.hashes, request.timeout_ms / 1000)
        return pb.AcquireStoredResponse(
            offsets=[spec.layout.offset(page.block) for page in run], lease_ms=round(spec.lease_seconds * 1000)
        )

    async def ReleaseStored(  # noqa: N802
        self, request: pb.ReleaseStoredRequest, context: Context
    ) -> pb.ReleaseStoredResponse:
        """Unpins stored pages."""
        return pb.ReleaseStoredResponse(alive=self._store.release(request.lease_id))

    async def StoreChanges(  # noqa: N802
        self, request: pb.StoreChangesRequest, context: Context
    ) -> pb.StoreChangesResponse:
        """What the prefix store holds."""
        news = self._contents.changes(request.version, self._store.contents())
        return pb.StoreChangesResponse(version=news.version, whole=news.whole, stored=news.stored, removed=news.removed)

    async def Stats(self, request: pb.StatsRequest, context: Context) -> pb.StatsResponse:  # noqa: N802
        """Gauges and counters; checks that no block is lost while at it."""
        blocks, meters = self._context.blocks, self._context.meters
        blocks.check()
        return pb.StatsResponse(
            host_blocks_total=self._context.spec.host_blocks,
            host_blocks_used=blocks.used_count,
            handles_open=self._owner.open_count,
            leases_active=self._owner.lease_count,
            transfers_active=self._pulls.active_count,
            bytes_read=meters.bytes_read,
            transfers_ended=meters.ended,
            store_leases=self._store.lease_count,
            store_tiers=tier_stats(self._store),
            transport_choices=[
                pb.TransportChoices(transport=name, reason=reason, count=count)
                for (name, reason), count in self._context.peers.choices.items()
            ],
        )
