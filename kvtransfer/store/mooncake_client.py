"""Mooncake's distributed store, as far as it is used."""

import ctypes
import os
import socket
from importlib import import_module
from typing import Protocol

from halfmoon.errors import ConfigError
from kvtransfer.transports.mooncake_engine import EXTRA, prepare_environment, protocol

_BUFFER_BYTES = 16 << 20
"""For what the library copies by itself."""

_PROBE_SECONDS = 1.0


class MooncakeStore(Protocol):
    """What is used of `mooncake.store.MooncakeDistributedStore`. A negative number is an error."""

    def setup(
        self, host: str, metadata: str, lent_bytes: int, buffer_bytes: int, protocol: str, devices: str, master: str, /
    ) -> int: ...

    def register_buffer(self, address: int, size: int, /) -> int: ...

    def batch_is_exist(self, keys: list[str], /) -> list[int]: ...

    def batch_put_from(self, keys: list[str], addresses: list[int], sizes: list[int], /) -> list[int]: ...

    def batch_get_into(self, keys: list[str], addresses: list[int], sizes: list[int], /) -> list[int]: ...

    def remove(self, key: str, force: bool, /) -> int: ...

    def close(self) -> int: ...


class _StoreModule(Protocol):
    def MooncakeDistributedStore(self) -> MooncakeStore: ...  # noqa: N802 - named by Mooncake


def load_store() -> MooncakeStore:
    """One that is not connected yet. Raises ConfigError where the library is missing."""
    prepare_environment()
    try:
        module: _StoreModule = import_module("mooncake.store")
    except ImportError as error:
        raise ConfigError(f"Mooncake's store cannot be loaded ({error}): pip install '{EXTRA}'") from error
    store = module.MooncakeDistributedStore()
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(store))  # its end would take seconds in which nothing runs
    return store


def listens(master: str) -> bool:
    """Whether somebody is at the address (host:port). Raises ConfigError for what is none."""
    host, _, port = master.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"the cluster's master is to be given as host:port, not {master!r}")
    try:
        socket.create_connection((host, int(port)), timeout=_PROBE_SECONDS).close()
    except OSError:
        return False
    return True


def join(store: MooncakeStore, *, host: str, listen: str, lent_bytes: int, master: str) -> bool:
    """Joins the pool of a `master` that `listens`, and lends it memory.

    Nothing else runs in this process meanwhile: that is short, unless the master has come to a standstill.
    """
    os.environ["MC_TCP_BIND_ADDRESS"] = listen
    return store.setup(host, "P2PHANDSHAKE", lent_bytes, _BUFFER_BYTES, protocol(), "", master) == 0
