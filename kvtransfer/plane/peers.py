"""The peers that this reader is connected to: one connection for each owner process, shared by its pulls."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc

from halfmoon.errors import LeaseExpiredError, OverloadedError
from kvtransfer.plane.peer import Peer
from kvtransfer.plane.routes import RouteBook
from kvtransfer.region import Region
from kvtransfer.spec import PlaneSpec


@dataclass(eq=False, slots=True)
class _Entry:
    endpoint: str
    incarnation: int
    connecting: "asyncio.Task[Peer]"
    watching: "asyncio.Task[None] | None" = None
    users: int = 0
    retired: bool = False
    closing: bool = False


class PeerBook:
    """Peers by endpoint and incarnation. A retired one gets no new pulls, and is closed after its last."""

    def __init__(self, spec: PlaneSpec, region: Region) -> None:
        self._spec = spec
        self._region = region
        self._routes = RouteBook()
        self._entries: dict[tuple[str, int], _Entry] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def choices(self) -> Mapping[tuple[str, str], int]:
        """How often which transport was chosen, by name and reason."""
        return self._routes.choices

    @asynccontextmanager
    async def use(self, endpoint: str, incarnation: int) -> AsyncIterator[Peer]:
        """A connected peer; the first use shakes hands, errors as of `Peer.connect`.

        An error inside retires the peer, unless it concerns the handle or the local pool alone.
        """
        entry = self._entries.get((endpoint, incarnation)) or self._enter(endpoint, incarnation)
        entry.users += 1
        try:
            yield await asyncio.shield(entry.connecting)
        except (LeaseExpiredError, OverloadedError):
            raise
        except Exception:
            self._retire(entry)
            raise
        finally:
            entry.users -= 1
            self._close_unused(entry)

    async def close(self) -> None:
        """Closes all peers; their pulls must have ended."""
        for entry in list(self._entries.values()):
            self._retire(entry)
        if self._closing:
            await asyncio.wait(self._closing)

    def _enter(self, endpoint: str, incarnation: int) -> _Entry:
        """A new incarnation at a known endpoint means that the old process is gone."""
        for entry in list(self._entries.values()):
            if entry.endpoint == endpoint:
                self._retire(entry)
        connect = Peer.connect(self._spec, self._region, self._routes, endpoint, incarnation)
        entry = _Entry(endpoint, incarnation, asyncio.create_task(connect))
        entry.connecting.add_done_callback(lambda _: self._connected(entry))
        self._entries[endpoint, incarnation] = entry
        return entry

    def _connected(self, entry: _Entry) -> None:
        if entry.connecting.cancelled() or entry.connecting.exception() is not None:
            self._retire(entry)
        else:
            entry.watching = asyncio.create_task(self._watch(entry, entry.connecting.result()))

    async def _watch(self, entry: _Entry, peer: Peer) -> None:
        """Retires the peer when its connection breaks: what is mapped of a dead process must go."""
        state = peer.channel.get_state()
        while state is grpc.ChannelConnectivity.READY:
            await peer.channel.wait_for_state_change(state)
            state = peer.channel.get_state()
        self._retire(entry)

    def _retire(self, entry: _Entry) -> None:
        entry.retired = True
        if self._entries.get((entry.endpoint, entry.incarnation)) is entry:
            del self._entries[entry.endpoint, entry.incarnation]
        self._close_unused(entry)

    def _close_unused(self, entry: _Entry) -> None:
        if not entry.retired or entry.users or entry.closing:
            return
        entry.closing = True
        task = asyncio.create_task(_close(entry))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _close(entry: _Entry) -> None:
    for task in (entry.connecting, entry.watching):
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
    if not entry.connecting.cancelled() and entry.connecting.exception() is None:
        await entry.connecting.result().close()
