"""Taking turns: in every round each contestant reads the case once or a few times, in another order each time."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from halfmoon.errors import TransferError
from kvtransfer.bench.cases import MIB, Case
from kvtransfer.bench.contestants import MEMCPY
from kvtransfer.bench.figures import Figures, figures
from kvtransfer.bench.pair import Pair, Turn
from kvtransfer.region import Region

_TURN_BYTES = 64 * MIB
_MOST_BATCHES = 50
_GARBAGE = 0xA5


@dataclass(frozen=True, slots=True)
class Pools:
    """The memory of all processes of a run: blocks go from `source` to `target`."""

    source: Region
    target: Region

    @classmethod
    def for_cases(cls, cases: Sequence[Case]) -> "Pools":
        """Pools that hold the largest case. Every page of them exists; the source is full of random bytes."""
        size = max(case.layout.total_bytes for case in cases)
        pools = cls(Region.create(size), Region.create(size))
        piece = np.random.default_rng(1).integers(0, 256, min(size, 16 * MIB), dtype=np.uint8)
        for offset in range(0, size, piece.size):
            place = pools.source.view(offset, min(piece.size, size - offset))
            np.bitwise_xor(piece[: place.size], offset // piece.size % 256, out=place)
        pools.target.view(0, size)[:] = 0
        return pools

    def close(self) -> None:
        """Gives both up."""
        self.source.close()
        self.target.close()


def batches_per_turn(case: Case) -> int:
    """Enough for a steady figure, few enough to keep rounds short."""
    return max(2, min(_MOST_BATCHES, _TURN_BYTES // case.bytes))


def measure(
    case: Case, pairs: Sequence[Pair], pools: Pools, rounds: int, told: Callable[[int], None]
) -> dict[str, Figures]:
    """Figures by contestant; `told` is called with each round that begins. Raises HalfmoonError when a read fails."""
    for pair in pairs:
        pair.prepare(case)
        _warm_up(case, pair, pools)
    turns: dict[str, list[Turn]] = {pair.name: [] for pair in pairs}
    order = random.Random(case.label)
    for number in range(rounds):
        told(number)
        for pair in order.sample(pairs, len(pairs)):
            turns[pair.name].append(pair.read(batches_per_turn(case)))
    return {
        name: figures(case.bytes, [turn.seconds for turn in taken], sum(turn.cpu_seconds for turn in taken))
        for name, taken in turns.items()
    }


def _warm_up(case: Case, pair: Pair, pools: Pools) -> None:
    """Two batches that are not counted, and that must bring the right bytes; `memcpy` does not scatter."""
    pools.target.view(0, pools.target.size)[:] = _GARBAGE
    pair.read(2)
    if pair.name != MEMCPY and not _arrived(case, pools):
        raise TransferError(f"{pair.name} brought wrong bytes for {case.label}")


def _arrived(case: Case, pools: Pools) -> bool:
    layout, size = case.layout, case.block_bytes
    return all(
        np.array_equal(pools.source.view(layout.offset(source), size), pools.target.view(layout.offset(target), size))
        for source, target in case.moves
    )
