"""Peers that something has failed with: others are used for a while. Plain Python; time passed in."""

_REMEMBERED = 1024


class AvoidedPeers:
    """Avoids a peer for `seconds` after a failure, never for ever."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: dict[str, float] = {}

    def failed(self, peer: str, now: float) -> None:
        """Avoids the peer from now on; forgets the oldest when there are too many."""
        self._until.pop(peer, None)
        self._until[peer] = now + self._seconds
        if len(self._until) > _REMEMBERED:
            del self._until[next(iter(self._until))]

    def avoids(self, peer: str, now: float) -> bool:
        """Whether the peer is to be left alone still."""
        return now < self._until.get(peer, now)
