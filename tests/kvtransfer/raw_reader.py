"""A reader that speaks the wire protocol by hand, to say what a good reader never says."""

import socket
import time
from dataclasses import replace
from types import TracebackType
from typing import Self

from kvtransfer.transports import wire
from kvtransfer.transports.base import BlockRead, ReadKey
from kvtransfer.transports.session import ReaderSession
from kvtransfer.transports.sockets import bound_by, receive_exactly
from kvtransfer.transports.tcp_server import parse_address


class RawReader:
    """One connection to the `shm` or `tcp` server at `address`, greeted. Every wait ends after five seconds."""

    def __init__(self, transport: str, address: str) -> None:
        if transport == "shm":
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.sock.connect(address)
        else:
            self.sock = socket.create_connection(parse_address(address))
        bound_by(self.sock, time.monotonic() + 5)
        self.session = ReaderSession(wire.Greeting.unpack(self.sock.recv(wire.GREETING_BYTES)))

    def request(self, key: ReadKey, *reads: BlockRead) -> tuple[wire.Request, bytes]:
        """A good request, and its ranges."""
        message = self.session.request(key, reads, wire.WANT_MEMORY)
        return wire.Request.unpack(message[: wire.REQUEST_BYTES]), message[wire.REQUEST_BYTES :]

    def ask(self, request: wire.Request, ranges: bytes) -> tuple[wire.Reply, int]:
        """The reply to a request, and how many descriptors came with it."""
        self.sock.send(request.pack() + ranges)
        message, fds, _, _ = socket.recv_fds(self.sock, wire.REPLY_BYTES, 4)
        for fd in fds:
            socket.close(fd)
        return wire.Reply.unpack(message), len(fds)

    def forged(self, key: ReadKey, *reads: BlockRead) -> tuple[wire.Request, bytes]:
        """A request for a handle whose public name is known, but not its secret."""
        request, ranges = self.request(key, *reads)
        return replace(request, proof=bytes(len(request.proof))), ranges

    def exactly(self, size: int) -> bytes:
        """The next bytes of a `tcp` connection."""
        return receive_exactly(self.sock, size, time.monotonic() + 5)

    def is_closed_by_peer(self) -> bool:
        """Waits for the end of the connection."""
        try:
            return self.sock.recv(1 << 16) == b""
        except ConnectionResetError:
            return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sock.close()
