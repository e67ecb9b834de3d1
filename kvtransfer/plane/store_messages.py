"""The prefix store in messages."""

from collections.abc import Iterable

from halfmoon.cache.hashing import HASH_BYTES
from halfmoon.errors import InvalidRequestError
from halfmoon.v1 import kvtransfer_pb2 as pb
from kvtransfer.plane.prefix_store import PrefixStore


def require_hashes(hashes: Iterable[bytes]) -> None:
    """Raises InvalidRequestError unless all are content hashes."""
    wrong = [each.hex() for each in hashes if len(each) != HASH_BYTES]
    if wrong:
        raise InvalidRequestError(
            f"{len(wrong)} content hashes do not have {HASH_BYTES} bytes, the first is {wrong[0]!r}"
        )


def tier_stats(store: PrefixStore) -> dict[str, pb.StoreTierStats]:
    """What is told of each tier, by its name."""
    meters = store.meters
    return {
        name: pb.StoreTierStats(
            hits=meters.hits[name],
            misses=meters.misses[name],
            stored=usage.stored,
            dropped=usage.dropped,
            damaged=usage.damaged,
            bytes=usage.bytes,
            limit_bytes=usage.limit_bytes,
            age_seconds=usage.age_seconds,
        )
        for name, usage in store.usage().items()
    }
