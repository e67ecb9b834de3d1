"""The transports to one peer: which one is taken for a batch, and what is remembered of those that failed."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from halfmoon.v1 import kvtransfer_pb2 as pb
from kvtransfer.core.transport_choice import Choice, Peer, Reason, Setbacks
from kvtransfer.transports.base import Transport

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class RouteBook:
    """What all peers share: failures, and how often which transport was chosen, by name and reason."""

    setbacks: Setbacks = field(default_factory=Setbacks)
    choices: Counter[tuple[str, str]] = field(default_factory=Counter)


class Routes:
    """Belongs to the event loop. `endpoints` come best first; `open_one` makes the transport of one."""

    def __init__(
        self,
        book: RouteBook,
        peer: Peer,
        endpoints: Sequence[pb.TransportEndpoint],
        open_one: Callable[[pb.TransportEndpoint], Transport],
    ) -> None:
        self._book = book
        self._peer = peer
        self._endpoints = {endpoint.name: endpoint for endpoint in endpoints}
        self._open_one = open_one
        self._open: dict[str, Transport] = {}
        self._last: tuple[str, Reason] | None = None

    def choose(self, without: Collection[str] = ()) -> Transport | None:
        """The transport for the next batch; None when none is left besides those `without`."""
        names = [name for name in self._endpoints if name not in without]
        if not names:
            return None
        choice = self._book.setbacks.choose(self._peer, names, time.monotonic())
        self._tell(choice)
        if choice.name not in self._open:
            self._open[choice.name] = self._open_one(self._endpoints[choice.name])
        return self._open[choice.name]

    def failed(self, name: str) -> None:
        """A transport is to blame for an error."""
        self._book.setbacks.failed(self._peer, name, time.monotonic())

    def worked(self, name: str) -> None:
        """A batch arrived whole."""
        self._book.setbacks.worked(self._peer, name)

    def close(self) -> None:
        """Closes all that were opened."""
        for transport in self._open.values():
            transport.close()

    def _tell(self, choice: Choice) -> None:
        """Counts and logs what has changed."""
        if self._last == (choice.name, choice.reason):
            return
        self._last = (choice.name, choice.reason)
        self._book.choices[choice.name, choice.reason.value] += 1
        level = logging.INFO if choice.reason is Reason.BEST else logging.WARNING
        fields = {"at": self._peer[0], "transport": choice.name, "reason": choice.detail}
        _log.log(level, "reads from a peer", extra=fields)
