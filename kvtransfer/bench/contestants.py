"""Who takes part in a run."""

from collections.abc import Callable
from dataclasses import dataclass

from kvtransfer.bench.limits import Memcpy, NoOwner, SocketOwner, SocketReader
from kvtransfer.bench.mooncake_engine import MooncakeOwner, MooncakeReader
from kvtransfer.bench.ours import WAYS, TransportOwner, TransportReader, Way
from kvtransfer.bench.sides import OwnerSide, ReaderSide
from kvtransfer.region import Region
from kvtransfer.transports.mooncake_engine import why_missing

MEMCPY = "memcpy"
SOCKET = "socket"
MOONCAKE = "mooncake engine"
MOONCAKE_PROTO = "mooncake engine, MC_TCP_PROTO=1"
HASHED = " + hash"


@dataclass(frozen=True, slots=True)
class Contestant:
    """One row of the report. `own` and `read` make the two ends, in two processes, from the pools of both.

    Those that are ours run in the environment of a data plane, others in what they find.
    """

    name: str
    own: Callable[[Region], OwnerSide]
    read: Callable[[Region, Region], ReaderSide]
    is_ours: bool = False


def known() -> list[Contestant]:
    """All there are, whether they can take part here or not."""
    return [
        Contestant(MEMCPY, lambda _: NoOwner(), Memcpy),
        Contestant(SOCKET, SocketOwner, lambda _, target: SocketReader(target)),
        *(_ours(way, hashed=hashed) for way in WAYS for hashed in (False, True)),
        _mooncake(MOONCAKE, {}),
        _mooncake(MOONCAKE_PROTO, {"MC_TCP_PROTO": "1"}),
    ]


def present() -> tuple[list[str], list[str]]:
    """The names of those that can take part here, and why others cannot."""
    names = [contestant.name for contestant in known()]
    missing = why_missing()
    if not missing:
        return names, []
    left = [name for name in names if not name.startswith("mooncake")]
    return left, [f"LEFT OUT: Mooncake's engine: {missing}; there are no ratios to it, and no `mooncake` transport"]


def contestant_named(name: str) -> Contestant:
    """The one of this name."""
    return next(contestant for contestant in known() if contestant.name == name)


def _ours(way: Way, *, hashed: bool) -> Contestant:
    return Contestant(
        way.name + (HASHED if hashed else ""),
        lambda source: TransportOwner(way, source),
        lambda _, target: TransportReader(way, target, hashed=hashed),
        is_ours=True,
    )


def _mooncake(name: str, settings: dict[str, str]) -> Contestant:
    return Contestant(
        name, lambda source: MooncakeOwner(source, settings), lambda _, target: MooncakeReader(target, settings)
    )
