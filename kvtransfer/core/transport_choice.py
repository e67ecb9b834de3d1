"""Which of several transports to a peer is taken: the best one that has not failed lately."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

FIRST_SECONDS = 1.0
LONGEST_SECONDS = 60.0
_REMEMBERED = 1024

Peer = tuple[str, int]
"""Endpoint and incarnation of an owner: a new process is judged anew."""


class Reason(Enum):
    """Why a transport was taken."""

    BEST = "best"
    """It is the best that both sides have."""
    FALLBACK = "fallback"
    """A better one failed and is left alone for now."""
    RETRY = "retry"
    """It failed, and it is time to try it again."""
    LAST_RESORT = "last_resort"
    """All have failed and are left alone for now; this one's time comes first."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A transport by name; `reason` in short, `detail` in words for the log."""

    name: str
    reason: Reason
    detail: str


@dataclass(slots=True)
class _Setback:
    failures: int
    until: float


class Setbacks:
    """What has failed, by peer and transport. A failed one is left alone twice as long each time, never for ever.

    Times are in seconds, `now` of any monotonic clock.
    """

    def __init__(self, *, first: float = FIRST_SECONDS, longest: float = LONGEST_SECONDS) -> None:
        self._first = first
        self._longest = longest
        self._setbacks: OrderedDict[tuple[Peer, str], _Setback] = OrderedDict()

    def failed(self, peer: Peer, name: str, now: float) -> None:
        """Leaves the transport alone for a while. What fails while it is left alone does not count again."""
        setback = self._setbacks.setdefault((peer, name), _Setback(0, now))
        if now >= setback.until:
            setback.failures += 1
            setback.until = now + min(self._longest, self._first * 2.0 ** min(setback.failures - 1, 32))
        self._setbacks.move_to_end((peer, name))
        while len(self._setbacks) > _REMEMBERED:
            self._setbacks.popitem(last=False)

    def worked(self, peer: Peer, name: str) -> None:
        """Forgets what failed before."""
        self._setbacks.pop((peer, name), None)

    def choose(self, peer: Peer, names: Sequence[str], now: float) -> Choice:
        """One of `names`, which come best first. Raises ValueError when there are none."""
        if not names:
            raise ValueError("there is no transport to choose from")
        left_alone: list[str] = []
        for name in names:
            setback = self._setbacks.get((peer, name))
            if setback is None or setback.until <= now:
                return _choice(name, setback, left_alone)
            left_alone.append(f"{name} is left alone for {setback.until - now:.1f} s, failures: {setback.failures}")
        soonest = min(names, key=lambda name: self._setbacks[peer, name].until)
        return Choice(soonest, Reason.LAST_RESORT, "; ".join(left_alone))


def _choice(name: str, setback: _Setback | None, left_alone: Sequence[str]) -> Choice:
    if setback is not None:
        return Choice(name, Reason.RETRY, f"tried again, failures so far: {setback.failures}")
    if left_alone:
        return Choice(name, Reason.FALLBACK, "; ".join(left_alone))
    return Choice(name, Reason.BEST, "the best that both sides have")
