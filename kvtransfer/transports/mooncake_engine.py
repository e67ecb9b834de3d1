"""Mooncake's Transfer Engine, as far as it is used: loading it, and lending engines that nothing stale can mislead.

An engine keeps what it learns of a peer's address for ever, holds a lock while it connects, and ends only slowly. So
each peer gets an engine of its own; one that is given back is lent again, but never for an address at which it
has met another engine, or at which something went wrong.
"""

import ctypes
import os
import secrets
import threading
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol

from halfmoon.errors import ConfigError

EXTRA = "halfmoon[mooncake]"

_SETTINGS = {
    "MC_LOG_LEVEL": "ERROR",
    "MC_TCP_PROTO": "1",  # half the latency; that a read is right is said by our own handshake
    "MC_TCP_STATUS_TIMEOUT_SEC": "2",
    "MC_TCP_PROGRESS_TIMEOUT_SEC": "2",
    "MC_HANDSHAKE_CONNECT_TIMEOUT": "2",
}
"""Read by the engine from the environment, where others may be given."""

_NOWHERE = "127.0.0.1"
"""Where an engine listens that nobody shall read from."""

_DEVICES = Path("/sys/class/infiniband")
_PENDING = 0
_DONE = 1
_TIMED_OUT = -2


class TransferEngine(Protocol):
    """What is used of `mooncake.engine.TransferEngine`. Calls return 0, or a negative number for an error."""

    def initialize(self, host: str, metadata: str, protocol: str, device: str, /) -> int: ...

    def register_memory(self, address: int, size: int, location: str, /) -> int: ...

    def unregister_memory(self, address: int, /) -> int: ...

    def get_rpc_port(self) -> int: ...

    def batch_transfer_async_read(
        self, target: str, addresses: list[int], peer_addresses: list[int], lengths: list[int], /
    ) -> int: ...

    def transfer_check_status(self, transfer: int, /) -> int: ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where an owner's engine is found: its name for peers, which one it is, and where the host pool lies for it."""

    segment: str
    engine_id: int
    base: int


class Engine:
    """Peers know it as `host`, it listens on `listen`. Raises ConfigError when it does not start."""

    def __init__(self, host: str, listen: str) -> None:
        self.host = host
        self.listen = listen
        self.has_served = False
        self._engine = _load().TransferEngine()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._engine))  # its end would take a second in which nothing runs
        self._met: dict[str, int | None] = {}
        self._engine_id = secrets.randbits(64)
        os.environ["MC_TCP_BIND_ADDRESS"] = listen
        if self._engine.initialize(f"[{host}]" if ":" in host else host, "P2PHANDSHAKE", protocol(), ""):
            raise ConfigError(f"Mooncake's engine does not start on {host}")

    @property
    def segment(self) -> str:
        """Its name for peers."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{name}:{self._engine.get_rpc_port()}"

    def register(self, address: int, size: int) -> Place:
        """Lets peers read this memory; where they find it. Raises ConfigError."""
        if self._engine.register_memory(address, size, "*"):
            raise ConfigError(f"Mooncake's engine does not take a host pool of {size} bytes")
        self.has_served = True
        if over_rdma():
            self._engine_id = secrets.randbits(64)  # the keys of what was registered before are worth nothing now
        return Place(self.segment, self._engine_id, address)

    def unregister(self, address: int) -> None:
        """The reverse; what is under way goes on."""
        self._engine.unregister_memory(address)

    def start_read(self, place: Place, address: int, offset: int, length: int) -> int | None:
        """Begins to copy `length` bytes at `offset` of the owner's pool to `address`.

        The number of the transfer, for `poll`; None when it was refused. May block while the engine connects.
        """
        return self._engine.batch_transfer_async_read(place.segment, [address], [place.base + offset], [length]) or None

    def poll(self, transfer: int) -> bool | None:
        """Whether a transfer has succeeded; None while it may still write. Not to be asked after an answer."""
        state = self._engine.transfer_check_status(transfer)
        return None if state in {_PENDING, _TIMED_OUT} else state == _DONE

    def fits(self, place: Place) -> bool:
        """Whether nothing that this engine remembers can be wrong for `place`."""
        return self._met.get(place.segment, place.engine_id) == place.engine_id

    def knows(self, place: Place) -> bool:
        """Whether it has read from there, so that it is connected."""
        return self._met.get(place.segment) == place.engine_id

    def meet(self, place: Place) -> None:
        """It is going to read from there."""
        self._met[place.segment] = place.engine_id

    def distrust(self, place: Place) -> None:
        """Something went wrong there: it must not be used for this address any more."""
        self._met[place.segment] = None


class EnginePool:
    """All engines of this process. They end with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Engine] = []

    def take_to_serve(self, host: str, listen: str) -> Engine:
        """An engine that peers know as `host`. Raises ConfigError when there is none to be had."""
        with self._lock:
            idle = [engine for engine in self._idle if (engine.host, engine.listen) == (host, listen)]
            idle.sort(key=lambda engine: not engine.has_served)
            return self._lend(idle) or Engine(host, listen)

    def take_to_read(self, host: str, place: Place) -> Engine:
        """An engine that reads from `place`. Raises ConfigError when there is none to be had."""
        with self._lock:
            idle = [engine for engine in self._idle if engine.host == host and engine.fits(place)]
            idle.sort(key=lambda engine: (not engine.knows(place), engine.has_served))
            engine = self._lend(idle) or Engine(host, _NOWHERE)
            engine.meet(place)
            return engine

    def give_back(self, engine: Engine) -> None:
        """When nothing runs in it any more."""
        with self._lock:
            self._idle.append(engine)

    def _lend(self, idle: list[Engine]) -> Engine | None:
        if idle:
            self._idle.remove(idle[0])
        return idle[0] if idle else None


ENGINES = EnginePool()
"""Of this process: an engine that is given up would stay in it anyway."""


def why_missing() -> str:
    """Empty where the engine can be loaded; else what to do."""
    try:
        _load()
    except ConfigError as error:
        return error.message
    return ""


def protocol() -> str:
    """ "rdma" where this machine has a device for it, else "tcp": how its engines move bytes."""
    forced = os.environ.get("MC_FORCE_TCP", "")
    return "rdma" if not forced and _DEVICES.is_dir() and any(_DEVICES.iterdir()) else "tcp"


def over_rdma() -> bool:
    """Whether bytes move past the kernel."""
    return protocol() == "rdma"


class _EngineModule(Protocol):
    def TransferEngine(self) -> TransferEngine: ...  # noqa: N802 - named by Mooncake


def prepare_environment() -> None:
    """Settings for Mooncake's libraries, which read them when they are loaded and later."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)


def _load() -> _EngineModule:
    prepare_environment()
    try:
        module: _EngineModule = import_module("mooncake.engine")
    except ModuleNotFoundError as error:
        raise ConfigError(f"Mooncake's engine is not installed: pip install '{EXTRA}'") from error
    except ImportError as error:
        raise ConfigError(f"Mooncake's engine cannot be loaded ({error}): see the README's system libraries") from error
    return module
