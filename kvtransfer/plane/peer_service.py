"""The `KvTransfer` service: what peers ask the owner of blocks."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing

from halfmoon.errors import IncompatibleError
from halfmoon.v1 import kvtransfer_pb2 as pb
from halfmoon.v1 import kvtransfer_pb2_grpc as rpc
from halfmoon.wire import geometry_from_pb
from kvtransfer.plane.handle_message import handle_message
from kvtransfer.plane.host import boot_id
from kvtransfer.plane.owner import HandleNews, Owner
from kvtransfer.plane.prefix_store import PrefixStore
from kvtransfer.plane.store_messages import require_hashes
from kvtransfer.rpc_types import Context
from kvtransfer.spec import PlaneSpec

_SAME_HOST_ONLY = frozenset({"shm"})


class PeerService(rpc.KvTransferServicer):
    """`addresses` are those of the transport servers by name; `endpoint()` is this service's own, once it serves."""

    def __init__(
        self,
        spec: PlaneSpec,
        owner: Owner,
        store: PrefixStore,
        addresses: Mapping[str, str],
        endpoint: Callable[[], str],
    ) -> None:
        self._spec = spec
        self._owner = owner
        self._store = store
        self._addresses = addresses
        self._endpoint = endpoint

    async def Hello(self, request: pb.HelloRequest, context: Context) -> pb.HelloResponse:  # noqa: N802
        """Refuses readers of another process's handles, another model or another geometry; both are named."""
        spec = self._spec
        if request.expected_incarnation:
            self._owner.require_incarnation(request.expected_incarnation)
        self._require_same_pages(request)
        return pb.HelloResponse(
            worker_id=spec.worker_id,
            incarnation=spec.incarnation,
            boot_id=boot_id(),
            transports=self._common_transports(request),
            region_bytes=spec.layout.total_bytes,
        )

    async def Watch(  # noqa: N802
        self, request: pb.WatchRequest, context: Context
    ) -> AsyncIterator[pb.WatchResponse]:
        """Streams what becomes known of a handle."""
        self._owner.require_incarnation(request.expected_incarnation)
        async with aclosing(self._owner.watch(request.handle_id, request.known_ready)) as all_news:
            async for news in all_news:
                yield self._watch_response(news)

    async def Renew(self, request: pb.RenewRequest, context: Context) -> pb.RenewResponse:  # noqa: N802
        """Extends a lease."""
        self._owner.require_incarnation(request.expected_incarnation)
        return pb.RenewResponse(lease_ms=round(self._owner.renew(request.handle_id) * 1000))

    async def Release(self, request: pb.ReleaseRequest, context: Context) -> pb.ReleaseResponse:  # noqa: N802
        """Ends a handle."""
        return pb.ReleaseResponse(released=self._owner.release(request.handle_id))

    async def Acquire(self, request: pb.AcquireRequest, context: Context) -> pb.AcquireResponse:  # noqa: N802
        """Lends stored pages to a reader of the same model and geometry."""
        self._require_same_pages(request)
        require_hashes(request.hashes)
        run = await self._store.pin_run(request.hashes, request.wait_ms / 1000)
        if not run:
            return pb.AcquireResponse()
        lease = request.lease_ms / 1000 or self._spec.lease_seconds
        handle = self._owner.lend(run, lease)
        pages = ((page.content_hash, self._spec.geometry.page_size) for page in run)
        return pb.AcquireResponse(handle=handle_message(self._spec, self._endpoint(), handle, pages))

    def _require_same_pages(self, request: pb.HelloRequest | pb.AcquireRequest) -> None:
        _require_equal("model", request.model_fingerprint, self._spec.fingerprint)
        _require_equal("geometry", geometry_from_pb(request.geometry), self._spec.geometry)

    def _common_transports(self, request: pb.HelloRequest) -> list[pb.TransportEndpoint]:
        same_host = request.boot_id == boot_id()
        names = [name for name in request.transports if name in self._addresses]
        return [
            pb.TransportEndpoint(name=name, address=self._addresses[name])
            for name in names
            if same_host or name not in _SAME_HOST_ONLY
        ]

    def _watch_response(self, news: HandleNews) -> pb.WatchResponse:
        response = pb.WatchResponse(
            incarnation=self._owner.incarnation,
            ready_count=news.ready_count,
            checksums=news.checksums,
            failure=news.failure,
        )
        if news.seal is not None:
            response.seal.MergeFromString(news.seal)
            response.seal.SetInParent()
        return response


def _require_equal(what: str, theirs: object, ours: object) -> None:
    if theirs != ours:
        raise IncompatibleError(f"the reader's {what} is {theirs}, the owner's is {ours}")
