"""The owner's side of `shm`: memory for readers of the same user, and a word before and after each copy."""

import array
import os
import socket
import struct
import time
from pathlib import Path

from kvtransfer.transports import wire
from kvtransfer.transports.base import ReadGate
from kvtransfer.transports.session import OwnerSession
from kvtransfer.transports.socket_server import SocketServer
from kvtransfer.transports.sockets import shut, within
from kvtransfer.transports.wire import WireError

MAX_MESSAGE = wire.REQUEST_BYTES + wire.MAX_READS * wire.RANGE_BYTES

_CREDENTIALS = struct.Struct("3i")


class ShmServer:
    """A `TransportServer` on a unix socket at `path`, which it makes and removes. Messages keep their boundaries."""

    name = "shm"

    def __init__(self, gate: ReadGate, path: Path, *, read_seconds: float, hello_seconds: float) -> None:
        self._gate = gate
        self._read_seconds = read_seconds
        self._hello_seconds = hello_seconds
        self._path = path
        self.address = str(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(self.address)
        listener.listen(128)
        self._server = SocketServer(listener, self.name, self._serve)

    @property
    def connection_count(self) -> int:
        """Connections that are open."""
        return self._server.connection_count

    def close(self) -> None:
        """See `TransportServer`."""
        self._server.close()
        self._path.unlink(missing_ok=True)

    def _serve(self, sock: socket.socket) -> None:
        """A reader that has proved nothing yet must speak soon; after that the connection may idle."""
        if not _same_user(sock):
            return
        session = OwnerSession(self._gate)
        deadline: float | None = time.monotonic() + self._hello_seconds
        within(sock, deadline, lambda: sock.send(session.greeting()))
        while message := within(sock, deadline, lambda: sock.recv(MAX_MESSAGE)):
            if not self._serve_batch(sock, session, message):
                return
            deadline = None

    def _serve_batch(self, sock: socket.socket, session: OwnerSession, message: bytes) -> bool:
        """One request; False when the reader did not prove that it may read."""
        request, ranges = _split(message)
        deadline = time.monotonic() + self._read_seconds
        answer = session.answer(request, ranges, lambda: shut(sock))
        if answer.grant is None:
            within(sock, deadline, lambda: sock.send(answer.reply))
            return False
        try:
            self._send_reply(sock, answer.reply, deadline, with_memory=bool(request.flags & wire.WANT_MEMORY))
            ended = wire.Trailer.unpack(within(sock, deadline, lambda: sock.recv(wire.TRAILER_BYTES)))
            if ended.sequence != request.sequence:
                raise WireError(f"end of batch {ended.sequence}, not {request.sequence}")
            trailer = session.trailer(request, answer.grant)
        finally:
            self._gate.end(answer.grant)
        within(sock, deadline, lambda: sock.send(trailer))
        return True

    def _send_reply(self, sock: socket.socket, reply: bytes, deadline: float, *, with_memory: bool) -> None:
        board = self._gate.board
        memory = [self._gate.region.fd] if board is None else [self._gate.region.fd, board.fd]
        rights = array.array("i", memory).tobytes()
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if with_memory else []
        within(sock, deadline, lambda: sock.sendmsg([reply], ancillary))


def _same_user(sock: socket.socket) -> bool:
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(credentials)
    return bool(uid == os.getuid())


def _split(message: bytes) -> tuple[wire.Request, bytes]:
    if len(message) < wire.REQUEST_BYTES:
        raise WireError(f"a request of {len(message)} bytes")
    request = wire.Request.unpack(message[: wire.REQUEST_BYTES])
    return request, _exactly(message[wire.REQUEST_BYTES :], request.count * wire.RANGE_BYTES)


def _exactly(message: bytes, size: int) -> bytes:
    if len(message) != size:
        raise WireError(f"a message of {len(message)} bytes, not {size}")
    return message
