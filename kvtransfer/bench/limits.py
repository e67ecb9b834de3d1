"""What the machine itself allows: a copy of as many bytes at once, and a socket without any protocol."""

import socket
import time

import numpy as np

from halfmoon.errors import TransferError
from kvtransfer.bench.cases import Case
from kvtransfer.bench.sides import Offer
from kvtransfer.region import Region
from kvtransfer.transports.socket_server import SocketServer
from kvtransfer.transports.sockets import PeerClosedError, receive_exactly, receive_into, send_all
from kvtransfer.transports.tcp_server import format_address, parse_address, tune

_HOST = "127.0.0.1"
_READ_SECONDS = 60.0


class NoOwner:
    """Nobody serves: the reader has the memory."""

    async def offer(self, case: Case) -> Offer:
        """See `OwnerSide`."""
        return Offer()

    def close(self) -> None:
        """See `OwnerSide`."""


class Memcpy:
    """Copies a contiguous run of the case's size from one pool to the other in one thread."""

    def __init__(self, source: Region, target: Region) -> None:
        self._source = source
        self._target = target
        self._bytes = 0

    def prepare(self, case: Case, offer: Offer) -> None:
        """See `ReaderSide`."""
        self._bytes = case.bytes

    def read(self) -> None:
        """See `ReaderSide`."""
        np.copyto(self._target.view(0, self._bytes), self._source.view(0, self._bytes))

    def close(self) -> None:
        """See `ReaderSide`."""


class SocketOwner:
    """Sends the case's blocks for every byte that arrives."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self._blocks: list[memoryview] = []
        listener = socket.create_server((_HOST, 0))
        self._address = format_address(_HOST, listener.getsockname()[1])
        self._server = SocketServer(listener, "socket", self._serve)

    async def offer(self, case: Case) -> Offer:
        """See `OwnerSide`."""
        layout = case.layout
        self._blocks = [self._region.view(layout.offset(place), case.block_bytes).data for place, _ in case.moves]
        return Offer(self._address)

    def close(self) -> None:
        """See `OwnerSide`."""
        self._server.close()

    def _serve(self, sock: socket.socket) -> None:
        tune(sock)
        while receive_exactly(sock, 1, None):
            send_all(sock, self._blocks, time.monotonic() + _READ_SECONDS)


class SocketReader:
    """Receives the blocks over one connection, each into its place."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self._places: list[memoryview] = []
        self._sock: socket.socket | None = None

    def prepare(self, case: Case, offer: Offer) -> None:
        """See `ReaderSide`."""
        layout = case.layout
        self._places = [self._region.view(layout.offset(place), case.block_bytes).data for _, place in case.moves]
        if self._sock is None:
            self._sock = socket.create_connection(parse_address(offer.address))
            tune(self._sock)

    def read(self) -> None:
        """See `ReaderSide`."""
        if self._sock is None:
            raise TransferError("the socket is not connected")
        try:
            self._sock.sendall(b"!")
            receive_into(self._sock, self._places, time.monotonic() + _READ_SECONDS)
        except (OSError, PeerClosedError) as error:
            raise TransferError(f"the bare socket broke: {error!r}") from error

    def close(self) -> None:
        """See `ReaderSide`."""
        if self._sock is not None:
            self._sock.close()
