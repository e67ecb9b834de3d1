"""A handle as its reader gets it."""

from collections.abc import Iterable, Sequence

from halfmoon.v1 import kvtransfer_pb2 as pb
from halfmoon.wire import geometry_to_pb
from kvtransfer.core.handle import Handle
from kvtransfer.layout import HOST_REGION
from kvtransfer.spec import PlaneSpec


def handle_message(spec: PlaneSpec, endpoint: str, handle: Handle, pages: Iterable[tuple[bytes, int]]) -> pb.KvHandle:
    """`pages` are content hash and number of tokens of each block; `endpoint` is the owner's `KvTransfer` service."""
    message = pb.KvHandle(
        handle_id=handle.handle_id,
        owner_worker_id=spec.worker_id,
        owner_incarnation=spec.incarnation,
        endpoint=endpoint,
        model_fingerprint=spec.fingerprint,
        geometry=geometry_to_pb(spec.geometry),
        blocks=[_block(spec, *page, place) for page, place in zip(pages, handle.blocks, strict=True)],
        ready_count=handle.ready_count,
        lease_ms=round(handle.lease * 1000),
    )
    _add_checksums(message, handle.checksums)
    return message


def _block(spec: PlaneSpec, content_hash: bytes, tokens: int, place: int) -> pb.KvBlock:
    return pb.KvBlock(
        content_hash=content_hash,
        tokens=tokens,
        region=HOST_REGION,
        offset=spec.layout.offset(place),
        length=spec.layout.block_bytes,
    )


def _add_checksums(message: pb.KvHandle, checksums: Sequence[int]) -> None:
    for block, checksum in zip(message.blocks, checksums, strict=False):
        block.checksum = checksum
