"""Pages in a Mooncake Store: one pool of memory for all workers of a cluster, which its master knows.

The pool is a cache that may lose anything: without its master it has nothing, and after the master's restart old pages
stay lost. Each page carries its name and its checksum, which decide what is right.
"""

import hashlib
import logging
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from kvtransfer.checksum import block_checksum
from kvtransfer.layout import BlockLayout
from kvtransfer.region import Region
from kvtransfer.spec import PlaneSpec
from kvtransfer.store.base import TierPage, TierPlace, TierUsage
from kvtransfer.store.bounded_call import BoundedCall
from kvtransfer.store.mooncake_client import join, listens, load_store

_CHECKSUM_BYTES = 8
_NAME_BYTES = 32
_TRAILER_BYTES = _CHECKSUM_BYTES + _NAME_BYTES
_SLOTS = 16
_CONNECT_AGAIN_SECONDS = 5.0
_CLOSE_SECONDS = 3.0
_MASTER_GONE = -900
"""From here on down, errors say that the master cannot be reached."""

_log = logging.getLogger(__name__)


class MooncakeTier:
    """A `StoreTier` over the pool of `spec.cluster_master`, to which it lends `spec.cluster_bytes`.

    Calls into the library may hang for half a minute. So they touch memory of the tier's own alone, and one that takes
    too long is left to itself; until it ends, the pool has nothing. It joins the pool when it is made, or later when
    there is no master yet. Raises ConfigError where the library is missing or the address is none.
    """

    name = "cluster"

    def __init__(self, spec: PlaneSpec) -> None:
        self._spec = spec
        self._store = load_store()
        self._page_bytes = spec.geometry.block_bytes
        self._slots = BlockLayout(self._page_bytes + _TRAILER_BYTES, _SLOTS)
        self._memory = Region.create(self._slots.total_bytes)
        self._prefix = f"halfmoon/{_model_name(spec)}/"
        self._connected = False
        self._connect_at = 0.0
        self._call: BoundedCall[list[int]] | None = None
        self._stored = self._dropped = self._damaged = 0
        self._reachable = True
        self._connect()

    def register(self, region: Region) -> None:
        """Pages are copied through memory of the tier's own."""

    def knows(self, content_hash: bytes) -> bool:
        """Never without asking."""
        return False

    def contents(self) -> frozenset[bytes]:
        """Not this worker's to tell."""
        return frozenset()

    def touch(self, hashes: Sequence[bytes]) -> None:
        """The pool's master sees to what is used."""

    def contains(self, hashes: Sequence[bytes], *, deadline: float) -> list[bool]:
        """See `StoreTier`."""
        keys = [self._key(content_hash) for content_hash in hashes]
        found = self._ask(lambda: self._store.batch_is_exist(keys), deadline)
        return [each == 1 for each in found] if found is not None else [False] * len(keys)

    def read(self, places: Sequence[TierPlace], *, deadline: float) -> list[int | None]:
        """See `StoreTier`."""
        checksums: list[int | None] = []
        for first in range(0, len(places), _SLOTS):
            checksums += self._read(places[first : first + _SLOTS], deadline)
        return checksums

    def write(self, pages: Sequence[TierPage], *, deadline: float) -> list[bool]:
        """See `StoreTier`."""
        kept: list[bool] = []
        for first in range(0, len(pages), _SLOTS):
            kept += self._write(pages[first : first + _SLOTS], deadline)
        self._stored += sum(kept)
        self._dropped += len(kept) - sum(kept)
        return kept

    def usage(self) -> TierUsage:
        """See `StoreTier`. What the pool holds is its master's to say."""
        return TierUsage(stored=self._stored, dropped=self._dropped, damaged=self._damaged)

    def close(self) -> None:
        """Takes back the memory that was lent, if that is possible soon."""
        if self._connected and not self._busy():
            self._connected = False
            try:
                BoundedCall(self._store.close, "store-cluster").result(time.monotonic() + _CLOSE_SECONDS)
            except TimeoutError:
                _log.warning("the cluster's pool does not let go", extra={"master": self._spec.cluster_master})

    def _read(self, places: Sequence[TierPlace], deadline: float) -> list[int | None]:
        keys, addresses, sizes = self._slots_for([place.content_hash for place in places])
        got = self._ask(lambda: self._store.batch_get_into(keys, addresses, sizes), deadline)
        if got is None:
            return [None] * len(places)
        checksums = [
            self._take(index, place) if size == sizes[index] else None
            for index, (place, size) in enumerate(zip(places, got, strict=True))
        ]
        damaged = [keys[index] for index, size in enumerate(got) if size >= 0 and checksums[index] is None]
        if damaged:
            self._drop(damaged, deadline)
        return checksums

    def _take(self, index: int, place: TierPlace) -> int | None:
        """The page in a slot, if it is what it must be."""
        slot = self._slot(index)
        checksum = block_checksum(slot[: self._page_bytes])
        if not np.array_equal(slot[self._page_bytes :], _trailer(place.content_hash, checksum)):
            return None
        place.data[:] = slot[: self._page_bytes]
        return checksum

    def _drop(self, keys: Sequence[str], deadline: float) -> None:
        """Makes room for the right pages under these names."""
        self._damaged += len(keys)
        _log.warning("pages of the cluster's pool are damaged", extra={"pages": len(keys)})
        self._ask(lambda: [self._store.remove(key, True) for key in keys], deadline)

    def _write(self, pages: Sequence[TierPage], deadline: float) -> list[bool]:
        if self._busy():
            return [False] * len(pages)
        for index, page in enumerate(pages):
            slot = self._slot(index)
            slot[: self._page_bytes] = page.data
            slot[self._page_bytes :] = _trailer(page.content_hash, page.checksum)
        keys, addresses, sizes = self._slots_for([page.content_hash for page in pages])
        put = self._ask(lambda: self._store.batch_put_from(keys, addresses, sizes), deadline)
        return [each == 0 for each in put] if put is not None else [False] * len(pages)

    def _ask(self, work: Callable[[], list[int]], deadline: float) -> list[int] | None:
        """What the library answers; None when it is not there, does not answer in time, or is busy with a late call."""
        if time.monotonic() >= deadline or self._busy() or not self._connect():
            return None
        self._call = BoundedCall(work, "store-cluster")
        try:
            answer = self._call.result(deadline)
        except TimeoutError:
            answer = None
        self._tell(reachable=answer is not None and all(each > _MASTER_GONE for each in answer))
        return answer

    def _connect(self) -> bool:
        """Joins the pool where that is possible at once; not again for a while when it is not."""
        if self._connected or time.monotonic() < self._connect_at:
            return self._connected
        spec = self._spec
        if listens(spec.cluster_master):
            joined = join(
                self._store,
                host=spec.peer_host,
                listen=spec.host,
                lent_bytes=spec.cluster_bytes,
                master=spec.cluster_master,
            )
            self._connected = joined and self._store.register_buffer(self._memory.address, self._memory.size) == 0
        self._connect_at = time.monotonic() + _CONNECT_AGAIN_SECONDS
        self._tell(reachable=self._connected)
        return self._connected

    def _busy(self) -> bool:
        """Whether a late call still uses the slots."""
        return self._call is not None and self._call.running

    def _tell(self, *, reachable: bool) -> None:
        if reachable is not self._reachable:
            self._reachable = reachable
            said = "the cluster's pool answers again" if reachable else "the cluster's pool does not answer"
            _log.log(logging.INFO if reachable else logging.WARNING, said, extra={"master": self._spec.cluster_master})

    def _key(self, content_hash: bytes) -> str:
        return self._prefix + content_hash.hex()

    def _slot(self, index: int) -> NDArray[np.uint8]:
        return self._memory.view(self._slots.offset(index), self._page_bytes + _TRAILER_BYTES)

    def _slots_for(self, hashes: Sequence[bytes]) -> tuple[list[str], list[int], list[int]]:
        """Keys, addresses and sizes of the first slots, one for each page."""
        addresses = [self._memory.address + self._slots.offset(index) for index in range(len(hashes))]
        return [self._key(each) for each in hashes], addresses, [self._page_bytes + _TRAILER_BYTES] * len(hashes)


def _trailer(content_hash: bytes, checksum: int) -> NDArray[np.uint8]:
    """What follows a page's bytes: its checksum and a digest of its name."""
    name = hashlib.blake2b(content_hash, digest_size=_NAME_BYTES).digest()
    return np.frombuffer(checksum.to_bytes(_CHECKSUM_BYTES, "little") + name, dtype=np.uint8)


def _model_name(spec: PlaneSpec) -> str:
    """Equal for workers whose pages are the same."""
    return hashlib.blake2b(f"{spec.fingerprint}\n{spec.geometry}".encode(), digest_size=16).hexdigest()
