"""A reader's connections to one server: opened when needed, kept while they are good, never used after an error."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kvtransfer.transports import wire
from kvtransfer.transports.base import StopSignal
from kvtransfer.transports.session import ReaderSession
from kvtransfer.transports.sockets import PeerClosedError, is_quiet, receive_exactly, shut


class Connection:
    """A connected socket whose server has greeted."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self.sock = sock
        self.session = ReaderSession(wire.Greeting.unpack(receive_exactly(sock, wire.GREETING_BYTES, deadline)))


class ConnectionPool:
    """Lends connections, each to one batch at a time. `connect(deadline)` makes a socket, or raises OSError."""

    def __init__(self, connect: Callable[[float], socket.socket], *, connect_seconds: float) -> None:
        self._connect = connect
        self._connect_seconds = connect_seconds
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._lent: set[socket.socket] = set()
        self._closed = False

    @contextmanager
    def lend(self, deadline: float, stop: StopSignal) -> Iterator[Connection]:
        """A connection for the body; closed instead of kept when the body raises, or `stop` or `close` broke it.

        Raises OSError (TimeoutError for a deadline), PeerClosedError or WireError when there is none to be had.
        """
        connection = self._take_idle()
        sock = connection.sock if connection else self._open(deadline)
        good = False
        try:
            with stop.attached(lambda: shut(sock)):
                greet_by = min(deadline, time.monotonic() + self._connect_seconds)
                connection = connection or Connection(sock, greet_by)
                yield connection
                good = not stop.stopped
        finally:
            self._give_back(sock, connection if good else None)

    def close(self) -> None:
        """Breaks what is lent, closes what is idle; nothing is lent from now on."""
        with self._lock:
            self._closed = True
            for sock in self._lent:
                shut(sock)
            for connection in self._idle:
                connection.sock.close()
            self._idle.clear()

    def _take_idle(self) -> Connection | None:
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if is_quiet(connection.sock):
                    self._lent.add(connection.sock)
                    return connection
                connection.sock.close()
        return None

    def _open(self, deadline: float) -> socket.socket:
        sock = self._connect(min(deadline, time.monotonic() + self._connect_seconds))
        with self._lock:
            if self._closed:
                sock.close()
                raise PeerClosedError
            self._lent.add(sock)
        return sock

    def _give_back(self, sock: socket.socket, connection: Connection | None) -> None:
        with self._lock:
            self._lent.discard(sock)
            if connection is not None and not self._closed:
                self._idle.append(connection)
            else:
                sock.close()
