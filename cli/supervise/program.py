"""What a supervised program is: its command, and how to see that it is ready."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum


class Tier(IntEnum):
    """Kinds of programs, in the order in which they drain: who takes requests stops before who works on them."""

    GATEWAY = 0
    ROUTER = 1
    WORKER = 2


@dataclass(frozen=True, slots=True)
class Readiness:
    """Where a program says that it is ready: gRPC health, or HTTP `/readyz` where `http` is set."""

    host: str
    port: int
    http: bool = False


@dataclass(frozen=True, slots=True)
class Program:
    """One program. `environment` is added to the supervisor's own; None takes a variable away."""

    name: str
    tier: Tier
    command: tuple[str, ...]
    readiness: Readiness
    environment: Mapping[str, str | None] = field(default_factory=dict)


def drain_order(programs: tuple[Program, ...]) -> list[list[Program]]:
    """Groups to stop one after the other."""
    tiers = sorted({program.tier for program in programs})
    return [[program for program in programs if program.tier is tier] for tier in tiers]
