"""The reader's side of `shm`: maps the owner's memory once and copies from it, between two words with the owner."""

import socket
import sys
import threading
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kvtransfer.core.recent import RecentSet
from kvtransfer.proofs import handle_tag
from kvtransfer.region import Region
from kvtransfer.transports import wire
from kvtransfer.transports.base import BlockRead, ReadKey, ReadStatus, StopSignal
from kvtransfer.transports.batch import BatchRefusedError, require_ok, run_batch
from kvtransfer.transports.connection import Connection, ConnectionPool
from kvtransfer.transports.shm_memory import OwnerMemory, ReceivedMemory, receive_message
from kvtransfer.transports.sockets import PeerClosedError, is_quiet, within

_FEW_BYTES = 1 << 20
"""Batches up to this size are copied so that the copy stays in the processor's cache, where it is checked next."""

_PIECE_BYTES = 64 << 10
"""Shorter than what `kvtransfer.environment` has the C library write past the cache."""

_WHOLE = sys.maxsize
_REMEMBERED = 1024
"""Handles whose secret the owner has seen proved."""


class ShmTransport:
    """A `Transport` to the server at `address` (a socket path) on the same host.

    One thread copies about as fast as memory allows; with a second, one copies while the other checks.
    """

    name = "shm"
    streams = 2

    def __init__(self, address: str, *, connect_seconds: float) -> None:
        self._address = address
        self._pool = ConnectionPool(self._connect, connect_seconds=connect_seconds)
        self._lock = threading.Lock()
        self._region: Region | None = None
        self._remote: OwnerMemory | None = None
        self._remote_incarnation = 0
        self._proven: RecentSet[bytes] = RecentSet(_REMEMBERED)
        self._closed = False

    def register(self, region: Region) -> None:
        """See `Transport`."""
        self._region = region

    def read_batch(
        self, key: ReadKey, reads: Sequence[BlockRead], *, deadline: float, stop: StopSignal
    ) -> list[ReadStatus]:
        """See `Transport`."""

        def exchange(connection: Connection) -> list[ReadStatus]:
            return self._exchange(connection, key, reads, deadline, stop)

        return run_batch(self._pool, key, reads, exchange, deadline=deadline, stop=stop)

    def close(self) -> None:
        """See `Transport`. Copies under way keep the mapping until they end."""
        self._pool.close()
        with self._lock:
            self._closed = True
            self._remote = None

    def _connect(self, deadline: float) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            within(sock, deadline, lambda: sock.connect(self._address))
        except OSError:
            sock.close()
            raise
        return sock

    def _exchange(
        self, connection: Connection, key: ReadKey, reads: Sequence[BlockRead], deadline: float, stop: StopSignal
    ) -> list[ReadStatus]:
        sock, session = connection.sock, connection.session
        remote = self._mapped(key.incarnation)
        if remote is not None and self._copied_unasked(sock, remote, key, reads, deadline, stop):
            return [ReadStatus.OK] * len(reads)
        request = session.request(key, reads, wire.WANT_MEMORY if remote is None else 0)
        within(sock, deadline, lambda: sock.send(request))
        message, memory = receive_message(sock, wire.REPLY_BYTES + len(reads), deadline)
        try:
            reply, said = wire.Reply.unpack(message[: wire.REPLY_BYTES]), message[wire.REPLY_BYTES :]
            require_ok(session.check_reply(key, reply, said))
            remote = remote or self._map(memory, key.incarnation, session.greeting.region_bytes)
        finally:
            memory.close()
        statuses = wire.unpack_statuses(said)
        self._copy(remote.region, reads, statuses, deadline, stop)
        within(sock, deadline, lambda: sock.send(session.end()))
        ended, _ = receive_message(sock, wire.TRAILER_BYTES, deadline)
        require_ok(session.check_trailer(wire.Trailer.unpack(ended)))
        with self._lock:
            self._proven.add(key.handle_id)
        return statuses

    def _copied_unasked(
        self,
        sock: socket.socket,
        remote: OwnerMemory,
        key: ReadKey,
        reads: Sequence[BlockRead],
        deadline: float,
        stop: StopSignal,
    ) -> bool:
        """True when the owner's board and the life of its process vouch for the copy; in any doubt the owner is asked.

        For handles whose secret has been proved before.
        """
        if remote.board is None or key.handle_id not in self._proven:
            return False
        claim = remote.board.claim(handle_tag(key.handle_id), reads)
        if claim is None or not claim.holds(time.monotonic()):
            return False
        self._copy(remote.region, reads, [ReadStatus.OK] * len(reads), deadline, stop)
        return is_quiet(sock) and claim.holds(time.monotonic())

    def _copy(
        self,
        remote: Region,
        reads: Sequence[BlockRead],
        statuses: Sequence[ReadStatus],
        deadline: float,
        stop: StopSignal,
    ) -> None:
        if self._region is None:
            raise RuntimeError("no region is registered")
        piece = _PIECE_BYTES if sum([read.length for read in reads]) <= _FEW_BYTES else _WHOLE
        target, source, clock = self._region.view, remote.view, time.monotonic
        for read, status in zip(reads, statuses, strict=True):
            if stop.stopped:
                raise BatchRefusedError(ReadStatus.STOPPED)
            if self._closed:
                raise PeerClosedError
            if clock() >= deadline:
                raise TimeoutError
            if status is ReadStatus.OK:
                _, offset, length, local_offset = read
                _copy(target(local_offset, length), source(offset, length), piece)

    def _mapped(self, incarnation: int) -> OwnerMemory | None:
        with self._lock:
            return self._remote if self._remote_incarnation == incarnation else None

    def _map(self, memory: ReceivedMemory, incarnation: int, size: int) -> OwnerMemory:
        """Maps what came with the first reply of a process, for all batches after it."""
        with self._lock:
            if self._closed:
                raise PeerClosedError
            if self._remote is None or self._remote_incarnation != incarnation:
                self._remote, self._remote_incarnation = memory.map(size), incarnation
            return self._remote


def _copy(target: NDArray[np.uint8], source: NDArray[np.uint8], piece: int) -> None:
    if source.size <= piece:
        np.copyto(target, source)
        return
    for start in range(0, source.size, piece):
        np.copyto(target[start : start + piece], source[start : start + piece])
