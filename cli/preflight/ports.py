"""TCP ports: is one free, and which ones to give to programs that only each other talk to."""

import random
import socket
from contextlib import ExitStack
from pathlib import Path

from halfmoon.errors import ConfigError

LOOPBACK = "127.0.0.1"

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 20_000


def check_free(host: str, port: int, flag: str) -> None:
    """Raises ConfigError, naming `flag`, when `port` of `host` cannot be listened on. Port 0 is always free."""
    try:
        _bind(host, port).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"cannot listen on {host}:{port} ({reason}): choose another {flag}") from error


def free_ports(count: int, taken: tuple[int, ...] = ()) -> list[int]:
    """Free ports of the loopback interface that are not in `taken`.

    They lie below the range from which the kernel takes ports for outgoing connections, so that no connection has one
    when a program that was started again wants its port back. Raises ConfigError when there are not enough.
    """
    candidates = [port for port in range(_LOWEST, _first_ephemeral()) if port not in taken]
    random.shuffle(candidates)
    found: list[int] = []
    with ExitStack() as held:
        for port in candidates:
            if len(found) == count:
                break
            try:
                held.enter_context(_bind(LOOPBACK, port))
            except OSError:
                continue
            found.append(port)
    if len(found) < count:
        raise ConfigError(f"fewer than {count} free ports on {LOOPBACK} from {_LOWEST} up")
    return found


def _bind(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1)
    except OSError:
        listener.close()
        raise
    return listener


def _first_ephemeral() -> int:
    try:
        first = int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first = 32_768
    return first if first > _LOWEST + 1_000 else 65_536
