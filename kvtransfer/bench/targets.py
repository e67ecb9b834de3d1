"""What the transports must reach, held against the figures of a run."""

from collections.abc import Mapping
from dataclasses import dataclass

from kvtransfer.bench.cases import KIB, MIB, SINGLE, Case
from kvtransfer.bench.contestants import HASHED, MEMCPY, MOONCAKE, MOONCAKE_PROTO
from kvtransfer.bench.figures import Figures, ratio

Results = Mapping[Case, Mapping[str, Figures]]

SINGLE_SHM_SECONDS = 0.05e-3
CONTROL_P99_SECONDS = 5e-3


@dataclass(frozen=True, slots=True)
class Target:
    """`ours` must be at least `least` times as fast as `theirs` in every case of batches."""

    ours: str
    theirs: str
    least: float


SPEED_TARGETS = (
    Target("tcp" + HASHED, MOONCAKE, 1.5),
    Target("tcp" + HASHED, MOONCAKE_PROTO, 1.2),
    Target("tcp", MOONCAKE, 2.0),
    Target("tcp", MOONCAKE_PROTO, 1.5),
    Target("shm", MEMCPY, 0.75),
    Target("shm" + HASHED, MEMCPY, 0.6),
    Target("shm" + HASHED, MOONCAKE, 4.0),
)

SINGLE_TCP_FACTOR = 1.5
"""Of Mooncake's best time, for a single block over TCP."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target in one case: `figure` against `bound`, in words and as met or not."""

    text: str
    figure: float
    bound: float
    met: bool


def is_held_to_targets(case: Case) -> bool:
    """Batches of at least 64 blocks of 180 KiB to 2 MiB."""
    return case.blocks >= 64 and 180 * KIB <= case.block_bytes <= 2 * MIB


def verdicts(results: Results, control_p99: float | None) -> list[Verdict]:
    """All that can be said of what was measured; targets whose contestants are missing are left out."""
    said = []
    for case, by_name in results.items():
        if is_held_to_targets(case):
            said += [_speed(case, target, by_name) for target in SPEED_TARGETS if _both(target, by_name)]
        elif case == SINGLE:
            said += _single(by_name)
    if control_p99 is not None:
        said.append(_at_most("control RPC p99 in ms", control_p99 * 1e3, CONTROL_P99_SECONDS * 1e3))
    return said


def _both(target: Target, by_name: Mapping[str, Figures]) -> bool:
    return target.ours in by_name and target.theirs in by_name


def _speed(case: Case, target: Target, by_name: Mapping[str, Figures]) -> Verdict:
    reached = ratio(by_name[target.ours], by_name[target.theirs])
    return Verdict(f"{case.label}: {target.ours} / {target.theirs}", reached, target.least, reached >= target.least)


def _single(by_name: Mapping[str, Figures]) -> list[Verdict]:
    said = []
    best = min((by_name[name].p50 for name in (MOONCAKE, MOONCAKE_PROTO) if name in by_name), default=None)
    tcp, shm = by_name.get("tcp" + HASHED), by_name.get("shm" + HASHED)
    if best is not None and tcp is not None:
        text = f"{SINGLE.label}: time of tcp{HASHED} / Mooncake's best"
        said.append(_at_most(text, tcp.p50 / best, SINGLE_TCP_FACTOR))
    if shm is not None:
        text = f"{SINGLE.label}: p50 of shm{HASHED} in ms"
        said.append(_at_most(text, shm.p50 * 1e3, SINGLE_SHM_SECONDS * 1e3))
    return said


def _at_most(text: str, figure: float, bound: float) -> Verdict:
    return Verdict(text, figure, bound, figure <= bound)
