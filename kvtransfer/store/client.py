"""The engine's side of the prefix store: putting pages in, and reading them back, in the host pool that it maps."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from halfmoon.rpc import open_channel
from halfmoon.v1 import kvtransfer_pb2 as pb
from halfmoon.v1 import kvtransfer_pb2_grpc as rpc
from halfmoon.wire import geometry_to_pb
from kvtransfer.calls import LOCAL_CALL_SECONDS, answer
from kvtransfer.settling import Settling
from kvtransfer.spec import PlaneSpec


@dataclass(frozen=True, slots=True)
class StorePlace:
    """A host block, at byte `offset`, reserved for the page `content_hash` by the put `put_id`."""

    content_hash: bytes
    offset: int
    put_id: int


@dataclass(frozen=True, slots=True)
class StoreLease:
    """Pages at `offsets` of the host pool, in order, pinned for `seconds` from when the lease was given."""

    lease_id: int
    offsets: tuple[int, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class StoreChanges:
    """What the store holds: pages `stored` and `removed` before `version`, or all of them (`whole`)."""

    version: int
    whole: bool
    stored: tuple[bytes, ...]
    removed: tuple[bytes, ...]


class StoreClient:
    """`DataPlane.store`. Belongs to the event loop of its `DataPlane`.

    Memory: a place is the engine's to write from `put_begin` until `put_end`; every place must come to that, also when
    writing failed. Leased pages are the engine's to read until `release`, which says whether what was read is right.
    """

    def __init__(self, spec: PlaneSpec, stub: "rpc.DataPlaneAsyncStub", settling: Settling) -> None:
        self._spec = spec
        self._stub = stub
        self._settling = settling

    async def put_begin(self, hashes: Sequence[bytes]) -> list[StorePlace]:
        """Reserves host blocks for the pages, in order, that are neither stored nor being stored.

        Answers at once, with as many as there is room for without touching what others use; maybe none.
        """
        put_id = _new_id()
        request = pb.BeginPutRequest(put_id=put_id, hashes=hashes)
        try:
            response = await answer(self._stub.BeginPut(request, timeout=LOCAL_CALL_SECONDS))
        except BaseException:
            self._settling.start(self._end_put(pb.EndPutRequest(put_id=put_id, give_up_rest=True)))
            raise
        return [StorePlace(place.content_hash, place.offset, put_id) for place in response.places]

    async def put_end(self, places: Sequence[StorePlace], checksums: Sequence[int | None]) -> None:
        """Says that places are written, each with its `block_checksum`, or given up (None). They can be of one put
        in parts, or of several. Goes on when its caller is cancelled.

        Raises InvalidRequestError for a place that is not being written.
        """
        requests: dict[int, pb.EndPutRequest] = {}
        for place, checksum in zip(places, checksums, strict=True):
            request = requests.setdefault(place.put_id, pb.EndPutRequest(put_id=place.put_id))
            request.pages.append(pb.PutPage(content_hash=place.content_hash, checksum=checksum))
        for request in requests.values():
            await self._settling.run(self._end_put(request))

    async def acquire(self, hashes: Sequence[bytes], timeout: float) -> StoreLease:  # noqa: ASYNC109
        """Pins the longest leading run of the pages that is in host memory or can be brought back in `timeout` seconds.

        The run is no longer than the store's part of the host pool: read, release, and ask for the rest of a longer
        one. A lease without pages must be released too.
        """
        lease_id = _new_id()
        request = pb.AcquireStoredRequest(lease_id=lease_id, hashes=hashes, timeout_ms=round(timeout * 1000))
        try:
            response = await answer(self._stub.AcquireStored(request, timeout=timeout + LOCAL_CALL_SECONDS))
        except BaseException:
            self._settling.start(self._release(lease_id))
            raise
        return StoreLease(lease_id, tuple(response.offsets), response.lease_ms / 1000)

    async def release(self, lease: StoreLease) -> bool:
        """Ends a lease. False when it had ended before: what was read since may be anything, and must not be used.

        Goes on when its caller is cancelled.
        """
        return await self._settling.run(self._release(lease.lease_id))

    async def changes(self, version: int) -> StoreChanges:
        """What has changed since the last call, which gave `version`; all that the store holds after 0."""
        request = pb.StoreChangesRequest(version=version)
        news = await answer(self._stub.StoreChanges(request, timeout=LOCAL_CALL_SECONDS))
        return StoreChanges(news.version, news.whole, tuple(news.stored), tuple(news.removed))

    async def acquire_from(self, endpoint: str, hashes: Sequence[bytes], timeout: float) -> pb.KvHandle | None:  # noqa: ASYNC109
        """A handle of the longest leading run of the pages that the data plane at `endpoint` holds, for `pull`.

        None when it has not even the first. Raises IncompatibleError for another model or geometry, UnavailableError or
        DeadlineError. Nobody has to be told of a handle that is not pulled: its lease ends.
        """
        request = pb.AcquireRequest(
            model_fingerprint=self._spec.fingerprint,
            geometry=geometry_to_pb(self._spec.geometry),
            hashes=hashes,
            lease_ms=round(self._spec.lease_seconds * 1000),
            wait_ms=round(timeout * 1000),
        )
        channel = open_channel(endpoint)
        try:
            stub: rpc.KvTransferAsyncStub = rpc.KvTransferStub(channel)
            response = await answer(stub.Acquire(request, timeout=timeout + self._spec.control_seconds))
        finally:
            await channel.close()
        return response.handle if response.HasField("handle") else None

    async def _end_put(self, request: pb.EndPutRequest) -> None:
        await answer(self._stub.EndPut(request, timeout=LOCAL_CALL_SECONDS))

    async def _release(self, lease_id: int) -> bool:
        request = pb.ReleaseStoredRequest(lease_id=lease_id)
        response = await answer(self._stub.ReleaseStored(request, timeout=LOCAL_CALL_SECONDS))
        return response.alive


def _new_id() -> int:
    return secrets.randbits(64) | 1
