"""A TCP proxy that does to the owner's bytes what networks and dying machines do."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kvtransfer.transports.sockets import shut
from kvtransfer.transports.tcp_server import parse_address


@dataclass
class Fault:
    """What happens to byte number `at` of what the owner sends on each connection: "cut", "flip", "stall" or "hold".

    "hold" keeps it and what follows until `Proxy.resume`.
    """

    kind: str = "none"
    at: int = 0


class Proxy:
    """Forwards connections to `target`; `fault` may be changed between connections."""

    def __init__(self, target: str) -> None:
        self.fault = Fault()
        self.holding = threading.Event()
        """Set once bytes are held."""
        self._resumed = threading.Event()
        self._target = parse_address(target)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._closing = threading.Event()
        self._spawn(self._accept)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def resume(self) -> None:
        """Lets go what is held."""
        self._resumed.set()

    def close(self) -> None:
        self._closing.set()
        self._resumed.set()
        shut(self._listener)
        for sock in self._sockets:
            shut(sock)
        for thread in self._threads:
            thread.join(5)
        for sock in (self._listener, *self._sockets):
            sock.close()

    def _spawn(self, work: "threading.Thread | object", *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                reader, _ = self._listener.accept()
            except OSError:
                return
            owner = socket.create_connection(self._target)
            self._sockets += [reader, owner]
            self._spawn(self._forward, reader, owner, Fault())
            self._spawn(self._forward, owner, reader, self.fault)

    def _forward(self, source: socket.socket, sink: socket.socket, fault: Fault) -> None:
        seen = 0
        try:
            while data := source.recv(1 << 16):
                if fault.kind != "none" and seen <= fault.at < seen + len(data):
                    data = self._harm(data, fault, fault.at - seen)
                seen += len(data)
                sink.sendall(data)
                if fault.kind == "cut" and seen == fault.at:
                    break
        except OSError:
            pass
        shut(source)
        shut(sink)

    def _harm(self, data: bytes, fault: Fault, index: int) -> bytes:
        if fault.kind == "flip":
            return data[:index] + bytes([data[index] ^ 0x10]) + data[index + 1 :]
        if fault.kind == "stall":
            self._closing.wait(10)
        if fault.kind == "hold":
            self.holding.set()
            self._resumed.wait(60)
            return data
        return data[:index]


@contextmanager
def proxy(target: str) -> Iterator[Proxy]:
    """A proxy that is gone, with its threads, when the body ends."""
    made = Proxy(target)
    try:
        yield made
    finally:
        made.close()
