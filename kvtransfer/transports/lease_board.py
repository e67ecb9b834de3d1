"""Which blocks of a host pool are whose, in memory that readers on the same host can see: a read needs no question.

For each block the owner keeps the mark of the handle whose lease covers it, and when that lease ends on the machine's
monotonic clock. The mark goes before the block can be reused. So a reader that finds its handle's mark before it copies
and again afterwards has copied the block while the lease held. One that does not find it asks the owner.
"""

import struct
from collections.abc import Sequence

import numpy as np

from kvtransfer.layout import BlockLayout
from kvtransfer.region import Region
from kvtransfer.transports.base import BlockRead
from kvtransfer.transports.wire import WireError

_HEADER = struct.Struct("<QQ")
_HEADER_WORDS = 2
_BLOCK_WORDS = 2
_WORD = 8
_NOBODY = 0


class LeaseBoard:
    """The owner's side; calls must not overlap. Closed by whoever made it."""

    def __init__(self, layout: BlockLayout) -> None:
        self._region = Region.create((_HEADER_WORDS + _BLOCK_WORDS * layout.count) * _WORD)
        self._region.forbid_new_writers()
        self._region.view(0, _HEADER.size)[:] = np.frombuffer(_HEADER.pack(layout.block_bytes, layout.count), np.uint8)
        blocks = self._region.view(_HEADER.size, self._region.size - _HEADER.size)
        self._marks = blocks.view(np.uint64)[::_BLOCK_WORDS]
        self._expiries = blocks.view(np.float64)[1::_BLOCK_WORDS]

    @property
    def fd(self) -> int:
        """For handing it to a reader, who can only read it."""
        return self._region.fd

    def post(self, blocks: Sequence[int], tag: bytes, expires: float) -> None:
        """These blocks can be read under the handle `tag` until `expires`."""
        places = np.asarray(blocks, dtype=np.intp)
        self._expiries[places] = expires
        self._marks[places] = _mark(tag)

    def clear(self, blocks: Sequence[int], tag: bytes) -> None:
        """The handle has ended. Blocks that are another's by now stay his."""
        places = np.asarray(blocks, dtype=np.intp)
        self._marks[places[self._marks[places] == _mark(tag)]] = _NOBODY

    def close(self) -> None:
        """Readers keep what they have mapped; it says that nobody has anything, whatever is posted later."""
        self._marks[:] = _NOBODY
        self._marks, self._expiries = self._marks.copy(), self._expiries.copy()
        self._region.close()


class BoardView:
    """A reader's side. Takes over `fd`; raises WireError when it is not that of a board."""

    def __init__(self, fd: int) -> None:
        region = Region.attach_readonly(fd, None)
        region.close_fd()
        if region.size < _HEADER.size:
            raise WireError(f"a board of {region.size} bytes")
        self._layout = BlockLayout(*_HEADER.unpack(region.view(0, _HEADER.size).tobytes()))
        expected = (_HEADER_WORDS + _BLOCK_WORDS * self._layout.count) * _WORD
        if region.size != expected or not self._layout.block_bytes:
            raise WireError(f"a board of {region.size} bytes for {self._layout}")
        words = region.view(0, region.size).data
        self._marks = words.cast("Q")
        self._expiries = words.cast("d")

    def claim(self, tag: bytes, reads: Sequence[BlockRead]) -> "Claim | None":
        """What must hold for these reads under the handle `tag`; None when a range lies in no single block."""
        words = []
        for read in reads:
            block = self._layout.block_of(read.offset, read.length)
            if block is None or read.region:
                return None
            words.append(_HEADER_WORDS + _BLOCK_WORDS * block)
        return Claim(self._marks, self._expiries, words, _mark(tag))


class Claim:
    """That some blocks are covered by the lease of one handle."""

    def __init__(self, marks: memoryview, expiries: "memoryview[float]", words: Sequence[int], mark: int) -> None:
        self._marks = marks
        self._expiries = expiries
        self._words = words
        self._mark = mark

    def holds(self, now: float) -> bool:
        """At `now` (monotonic), for all of them."""
        marks, expiries, mark = self._marks, self._expiries, self._mark
        return all(marks[word] == mark and expiries[word + 1] > now for word in self._words)


def _mark(tag: bytes) -> int:
    """Of a handle's public name; never that of nobody."""
    return int.from_bytes(tag[:_WORD], "little") | 1
