"""What shall happen to random transfers and to their owners, drawn from a seed."""

import random
from dataclasses import dataclass
from enum import Enum

from tests.kvtransfer.faults.misdeeds import Plan, draw_plan

STOPS_PER_TRANSFER = 0.012
DEATHS_PER_TRANSFER = 0.0025


class Prefill(Enum):
    """What the owner's engine does with the prompt."""

    BEFORE = "before"
    """Sealed before the pull begins."""
    MEANWHILE = "meanwhile"
    """Published block by block while it runs."""
    GIVES_UP = "gives up"
    """Withdrawn in the middle."""
    HANGS = "hangs"
    """Never sealed."""


@dataclass(frozen=True)
class Fate:
    """Of one transfer; times in seconds. It is cancelled after `cancel_after` unless that is None."""

    owner: int
    blocks: int
    wanted: tuple[int, ...]
    timeout: float
    prefill: Prefill
    pace: float
    hold: float
    cancel_after: float | None
    plan: Plan


def draw_fate(seed: int, index: int, owners: int) -> Fate:
    """The fate of transfer number `index`."""
    rng = random.Random(f"{seed}/{index}")
    blocks = rng.randint(1, 8)
    wanted = sorted(rng.sample(range(blocks), rng.randint(0, blocks))) if rng.random() < 0.3 else range(blocks)
    prefill = rng.choices(list(Prefill), (6, 4, 1, 0.3))[0]
    return Fate(
        owner=rng.randrange(owners),
        blocks=blocks,
        wanted=tuple(wanted),
        timeout=rng.uniform(0.2, 0.6) if prefill is Prefill.HANGS else rng.uniform(0.4, 4.0),
        prefill=prefill,
        pace=rng.random() * 0.02,
        hold=rng.choice((0.0, 0.0, 0.0, rng.random() * 0.05)),
        cancel_after=rng.random() * 0.1 if rng.random() < 0.1 else None,
        plan=draw_plan(f"{seed}/{index}"),
    )


@dataclass(frozen=True)
class Trouble:
    """An owner process stands still for `seconds`, or is killed and replaced when that is None."""

    owner: int
    seconds: float | None


def draw_troubles(seed: int, count: int, owners: int) -> dict[int, Trouble]:
    """By the number of the transfer that begins at the same time; at least one of each kind."""
    rng = random.Random(f"{seed}/troubles")
    stops = max(1, round(count * STOPS_PER_TRANSFER))
    deaths = max(1, round(count * DEATHS_PER_TRANSFER))
    moments = rng.sample(range(count // 10, count - count // 10), stops + deaths)
    troubles = [Trouble(rng.randrange(owners), rng.uniform(0.05, 1.0)) for _ in range(stops)]
    troubles += [Trouble(rng.randrange(owners), None) for _ in range(deaths)]
    return dict(zip(moments, troubles, strict=True))
