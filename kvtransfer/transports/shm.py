"""The reader's side of `shm`: maps the owner's memory once and copies from it, between two words with the owner."""

import array
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from halfmoon.errors import TransferError
from kvtransfer.region import Region
from kvtransfer.transports import wire
from kvtransfer.transports.base import BlockRead, ReadKey, ReadStatus, StopSignal
from kvtransfer.transports.batch import BatchRefusedError, require_ok, run_batch
from kvtransfer.transports.connection import Connection, ConnectionPool
from kvtransfer.transports.sockets import PeerClosedError, within
from kvtransfer.transports.wire import WireError

_RIGHTS_SPACE = socket.CMSG_SPACE(struct.calcsize("i"))
_FEW_BYTES = 1 << 20
"""Batches up to this size are copied so that the copy stays in the processor's cache, where it is checked next."""

_PIECE_BYTES = 64 << 10
"""Shorter than what `kvtransfer.environment` has the C library write past the cache."""

_WHOLE = sys.maxsize


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
        self._remote: Region | None = None
        self._remote_incarnation = 0
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
        request = session.request(key, reads, wire.WANT_MEMORY if remote is None else 0)
        within(sock, deadline, lambda: sock.send(request))
        message, memory = _receive(sock, wire.REPLY_BYTES + len(reads), deadline)
        try:
            reply, said = wire.Reply.unpack(message[: wire.REPLY_BYTES]), message[wire.REPLY_BYTES :]
            require_ok(session.check_reply(key, reply, said))
            remote = remote or self._map(memory, key.incarnation, session.greeting.region_bytes)
        finally:
            memory.close()
        statuses = wire.unpack_statuses(said)
        self._copy(remote, reads, statuses, deadline, stop)
        within(sock, deadline, lambda: sock.send(session.end()))
        ended, _ = _receive(sock, wire.TRAILER_BYTES, deadline)
        require_ok(session.check_trailer(wire.Trailer.unpack(ended)))
        return statuses

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

    def _mapped(self, incarnation: int) -> Region | None:
        with self._lock:
            return self._remote if self._remote_incarnation == incarnation else None

    def _map(self, memory: "ReceivedMemory", incarnation: int, size: int) -> Region:
        """Maps what came with the first reply of a process, for all batches after it."""
        with self._lock:
            if self._closed:
                raise PeerClosedError
            if self._remote is None or self._remote_incarnation != incarnation:
                self._remote, self._remote_incarnation = memory.map(size), incarnation
            return self._remote


class ReceivedMemory:
    """Descriptors that came with a message; whoever receives them must close them."""

    def __init__(self, fds: list[int]) -> None:
        self._fds = fds

    def map(self, size: int) -> Region:
        """Raises WireError unless the first is a sealed region of `size` bytes."""
        if not self._fds:
            raise WireError("the reply came without memory")
        try:
            region = Region.attach_readonly(self._fds.pop(0), size)
        except TransferError as error:
            raise WireError(error.message) from error
        region.close_fd()
        return region

    def close(self) -> None:
        """Closes what was not mapped; idempotent."""
        while self._fds:
            os.close(self._fds.pop())


def _copy(target: NDArray[np.uint8], source: NDArray[np.uint8], piece: int) -> None:
    if source.size <= piece:
        np.copyto(target, source)
        return
    for start in range(0, source.size, piece):
        np.copyto(target[start : start + piece], source[start : start + piece])


def _receive(sock: socket.socket, limit: int, deadline: float) -> tuple[bytes, ReceivedMemory]:
    message, ancillary, flags, _ = within(
        sock, deadline, lambda: sock.recvmsg(limit, _RIGHTS_SPACE, socket.MSG_CMSG_CLOEXEC)
    )
    memory = ReceivedMemory(_descriptors(ancillary))
    if message and not flags & socket.MSG_TRUNC:
        return message, memory
    memory.close()
    if message:
        raise WireError("a message is longer than it may be")
    raise PeerClosedError


def _descriptors(ancillary: Iterable[tuple[int, int, bytes]]) -> list[int]:
    fds = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data[: len(data) // fds.itemsize * fds.itemsize])
    return fds.tolist()
