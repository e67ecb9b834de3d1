"""Where the blocks of a host pool lie."""

import mmap
from dataclasses import dataclass, field

HOST_REGION = 0
"""Number of the host pool among a worker's registered regions."""


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """`count` blocks of `block_bytes` each, every one beginning at a page boundary of the machine.

    `stride` is the bytes from one block to the next: copies from and to unaligned places run three times slower.
    """

    block_bytes: int
    count: int
    stride: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "stride", -(-self.block_bytes // mmap.PAGESIZE) * mmap.PAGESIZE)

    @property
    def total_bytes(self) -> int:
        """Bytes of the whole pool."""
        return self.stride * self.count

    def offset(self, index: int) -> int:
        """Byte offset of block `index`."""
        return index * self.stride

    def index(self, offset: int) -> int:
        """The block that begins at byte `offset`. Raises ValueError when none does."""
        index, rest = divmod(offset, self.stride)
        if rest or not 0 <= index < self.count:
            raise ValueError(f"no host block begins at offset {offset}")
        return index

    def block_of(self, offset: int, length: int) -> int | None:
        """The block that the bytes [offset, offset + length) lie in; None when they lie in no single block."""
        if offset < 0 or length < 1:
            return None
        index, within = divmod(offset, self.stride)
        fits = index < self.count and within + length <= self.block_bytes
        return index if fits else None
