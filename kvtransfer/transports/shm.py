"""The reader's side of `shm`: maps the owner's memory once and copies from it, between two words with the owner."""

import os
import socket
import threading
import time
from collections.abc import Sequence

import numpy as np

from halfmoon.errors import TransferError
from kvtransfer.region import Region
from kvtransfer.transports import wire
from kvtransfer.transports.base import BlockRead, ReadKey, ReadStatus, StopSignal
from kvtransfer.transports.batch import BatchRefusedError, require_ok, run_batch
from kvtransfer.transports.connection import Connection, ConnectionPool
from kvtransfer.transports.sockets import PeerClosedError, bound_by
from kvtransfer.transports.wire import WireError


class ShmTransport:
    """A `Transport` to the server at `address` (a socket path) on the same host. One copying thread fills the bus."""

    name = "shm"
    streams = 1

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
            try:
                return self._exchange(connection, key, reads, deadline, stop)
            except BlockingIOError as error:
                raise TimeoutError from error

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
            bound_by(sock, deadline)
            sock.connect(self._address)
        except OSError:
            sock.close()
            raise
        return sock

    def _exchange(
        self, connection: Connection, key: ReadKey, reads: Sequence[BlockRead], deadline: float, stop: StopSignal
    ) -> list[ReadStatus]:
        sock, session = connection.sock, connection.session
        remote = self._mapped(key.incarnation)
        bound_by(sock, deadline)
        sock.send(session.request(key, reads, wire.WANT_MEMORY if remote is None else 0))
        message, memory = _receive(sock, wire.REPLY_BYTES + len(reads))
        try:
            reply, said = wire.Reply.unpack(message[: wire.REPLY_BYTES]), message[wire.REPLY_BYTES :]
            require_ok(session.check_reply(key, reply, said))
            remote = remote or self._map(memory, key.incarnation, session.greeting.region_bytes)
        finally:
            memory.close()
        statuses = wire.unpack_statuses(said)
        self._copy(remote, reads, statuses, deadline, stop)
        bound_by(sock, deadline)
        sock.send(session.end())
        require_ok(session.check_trailer(wire.Trailer.unpack(_receive(sock, wire.TRAILER_BYTES)[0])))
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
        for read, status in zip(reads, statuses, strict=True):
            if stop.stopped:
                raise BatchRefusedError(ReadStatus.STOPPED)
            if self._closed:
                raise PeerClosedError
            if time.monotonic() >= deadline:
                raise TimeoutError
            if status is ReadStatus.OK:
                np.copyto(self._region.view(read.local_offset, read.length), remote.view(read.offset, read.length))

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


def _receive(sock: socket.socket, limit: int) -> tuple[bytes, ReceivedMemory]:
    message, fds, flags, _ = socket.recv_fds(sock, limit, 1, socket.MSG_CMSG_CLOEXEC)
    memory = ReceivedMemory(fds)
    if message and not flags & socket.MSG_TRUNC:
        return message, memory
    memory.close()
    if message:
        raise WireError("a message is longer than it may be")
    raise PeerClosedError
