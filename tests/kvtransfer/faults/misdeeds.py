"""What a bad transport does to a read, drawn from a seed: the same seed means the same misdeeds."""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Misdeed(Enum):
    """What happens to one batch."""

    NONE = "none"
    DROP = "drop"
    """Nothing arrives, and the transport says so."""
    CUT = "cut"
    """The first part arrives, then the connection breaks."""
    DELAY = "delay"
    """Everything arrives, late or too late."""
    SHORT = "short"
    """The end of a block is missing, said to be there."""
    FLIP = "flip"
    """One bit is another, said to be right."""
    SWAP = "swap"
    """Two blocks arrive, each in the other's place; of a single one, its bytes arrive rotated."""
    STALE = "stale"
    """The bytes are those of other memory at the same address, said to be right."""
    REFUSE = "refuse"
    """The owner says that the lease is over, or that it is somebody else."""
    RAISE = "raise"
    """A bug of the transport."""


HARMLESS = frozenset({Misdeed.NONE, Misdeed.DELAY})
"""After these the bytes may be right."""


@dataclass(frozen=True)
class Plan:
    """`misdeeds[n]` happens to the n-th batch of a transfer, nothing to those after the last."""

    seed: str
    misdeeds: tuple[Misdeed, ...] = ()

    def batch(self, number: int) -> "tuple[Misdeed, random.Random]":
        """What happens to a batch, and the numbers that decide where in it."""
        misdeed = self.misdeeds[number] if number < len(self.misdeeds) else Misdeed.NONE
        return misdeed, random.Random(f"{self.seed}/{number}")


def draw_plan(seed: str, *, batches: int = 3, bad: float = 0.5, kinds: Iterable[Misdeed] = Misdeed) -> Plan:
    """A plan that with probability `bad` has something happen to one or more of the first batches."""
    rng = random.Random(seed)
    if rng.random() >= bad:
        return Plan(seed)
    choices = [kind for kind in kinds if kind is not Misdeed.NONE]
    misdeeds = [rng.choice(choices) if rng.random() < 0.5 else Misdeed.NONE for _ in range(batches)]
    return Plan(seed, tuple(misdeeds))
