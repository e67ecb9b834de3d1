"""A server of blocking connections, one thread each: accepting, counting, and ending all of them on close."""

import logging
import socket
import threading
import time
from collections.abc import Callable

from kvtransfer.transports.sockets import PeerClosedError, shut
from kvtransfer.transports.wire import WireError

MAX_CONNECTIONS = 256
"""More are closed as soon as they come."""

_CLOSE_SECONDS = 5.0

_log = logging.getLogger(__name__)


class SocketServer:
    """Calls `serve(sock)` in a thread of its own for every connection of `listener`, which it takes over.

    `serve` returns or raises to end its connection: OSError, PeerClosedError and WireError are the ordinary ways.
    """

    def __init__(self, listener: socket.socket, name: str, serve: Callable[[socket.socket], None]) -> None:
        self._listener = listener
        self._name = name
        self._serve = serve
        self._lock = threading.Lock()
        self._connections: dict[threading.Thread, socket.socket] = {}
        self._closed = False
        self._acceptor = threading.Thread(target=self._accept, name=f"{name}-accept", daemon=True)
        self._acceptor.start()

    @property
    def connection_count(self) -> int:
        """Connections that are open."""
        with self._lock:
            return len(self._connections)

    def close(self) -> None:
        """Breaks all connections; returns when no thread is left, or after a few seconds. Idempotent."""
        with self._lock:
            self._closed = True
            threads = list(self._connections)
            for sock in self._connections.values():
                shut(sock)
        shut(self._listener)
        deadline = time.monotonic() + _CLOSE_SECONDS
        for thread in (self._acceptor, *threads):
            thread.join(max(0.0, deadline - time.monotonic()))
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError as error:
                if self._closed:
                    return
                _log.warning("cannot accept a connection", extra={"transport": self._name, "error": error.strerror})
                time.sleep(0.1)
                continue
            self._start(sock)

    def _start(self, sock: socket.socket) -> None:
        thread = threading.Thread(target=self._run, args=(sock,), name=f"{self._name}-serve", daemon=True)
        with self._lock:
            if self._closed or len(self._connections) >= MAX_CONNECTIONS:
                sock.close()
                return
            self._connections[thread] = sock
            thread.start()

    def _run(self, sock: socket.socket) -> None:
        try:
            self._serve(sock)
        except (OSError, PeerClosedError, WireError) as error:
            _log.debug("connection ended", extra={"transport": self._name, "error": repr(error)})
        finally:
            with self._lock:
                del self._connections[threading.current_thread()]
                sock.close()
