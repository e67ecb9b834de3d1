"""What is read: so many blocks of a size, scattered over a pool on both sides."""

import random
from dataclasses import dataclass
from functools import cached_property

from kvtransfer.layout import BlockLayout

KIB = 1024
MIB = 1024 * KIB

DEFAULT_PAGE_BYTES = 30 * 3 * 64 * 2 * 64 * 4
"""A page of 64 tokens of SmolLM2-135M in float32: 30 layers, 3 KV heads, K and V of 64 dimensions."""

_SPREAD = 2
"""Places in the pool for each block that is read."""


@dataclass(frozen=True)
class Case:
    """One batch of `blocks` blocks of `block_bytes`."""

    block_bytes: int
    blocks: int

    @property
    def label(self) -> str:
        """Like `64 x 180 KiB`."""
        return f"{self.blocks} x {size_label(self.block_bytes)}"

    @property
    def bytes(self) -> int:
        """Of all blocks."""
        return self.block_bytes * self.blocks

    @property
    def layout(self) -> BlockLayout:
        """Of the pool, at either side."""
        return BlockLayout(self.block_bytes, self.blocks * _SPREAD)

    @cached_property
    def moves(self) -> tuple[tuple[int, int], ...]:
        """From where to where each block goes, as places of the two pools; the same in every process."""
        source = random.Random(f"source {self.label}").sample(range(self.layout.count), self.blocks)
        target = random.Random(f"target {self.label}").sample(range(self.layout.count), self.blocks)
        return tuple(zip(source, target, strict=True))


SINGLE = Case(180 * KIB, 1)
"""What latency is measured with."""

FULL = (
    Case(16 * KIB, 1024),
    Case(64 * KIB, 1024),
    Case(180 * KIB, 64),
    Case(180 * KIB, 256),
    Case(180 * KIB, 1024),
    Case(720 * KIB, 256),
    Case(2 * MIB, 64),
    Case(DEFAULT_PAGE_BYTES, 64),
    Case(4 * MIB, 64),
)

QUICK = (Case(16 * KIB, 256), Case(180 * KIB, 64), Case(2 * MIB, 64), Case(DEFAULT_PAGE_BYTES, 64))


def size_label(count: int) -> str:
    """In KiB or MiB, with as few digits as tell it apart."""
    return f"{count / MIB:.3g} MiB" if count >= MIB else f"{count / KIB:.3g} KiB"
