"""Mooncake's Transfer Engine over TCP, called bare: no lease, no deadline and no checksum around it."""

import os
from importlib import import_module
from typing import Protocol

from halfmoon.errors import TransferError, UnavailableError
from kvtransfer.bench.cases import Case
from kvtransfer.bench.sides import Offer
from kvtransfer.region import Region

_HOST = "127.0.0.1"


class _Engine(Protocol):
    """What is used of `mooncake.engine.TransferEngine`; calls return 0, or a negative number for an error."""

    def initialize(self, host: str, metadata: str, protocol: str, device: str, /) -> int: ...

    def register_memory(self, address: int, size: int, /) -> int: ...

    def get_rpc_port(self) -> int: ...

    def batch_transfer_sync_read(
        self, target: str, addresses: list[int], peer_addresses: list[int], lengths: list[int], /
    ) -> int: ...


def _open_engine(region: Region, settings: dict[str, str]) -> _Engine:
    """An engine with the region registered. `settings` are environment variables, which it reads when it starts."""
    os.environ.update(settings)
    engine: _Engine = import_module("mooncake.engine").TransferEngine()
    if engine.initialize(_HOST, "P2PHANDSHAKE", "tcp", ""):
        raise UnavailableError("Mooncake's engine does not start")
    if engine.register_memory(_address_of(region), region.size):
        raise UnavailableError(f"Mooncake's engine does not take {region.size} bytes")
    return engine


def _address_of(region: Region) -> int:
    """Where the region begins in this process."""
    return int(region.view(0, region.size).ctypes.data)


class MooncakeOwner:
    """An engine that others read from."""

    def __init__(self, region: Region, settings: dict[str, str]) -> None:
        self._region = region
        self._engine = _open_engine(region, settings)

    async def offer(self, case: Case) -> Offer:
        """See `OwnerSide`."""
        return Offer(f"{_HOST}:{self._engine.get_rpc_port()}", base=_address_of(self._region))

    def close(self) -> None:
        """See `OwnerSide`. The engine ends with its process."""


class MooncakeReader:
    """An engine that reads one batch at a time."""

    def __init__(self, region: Region, settings: dict[str, str]) -> None:
        self._region = region
        self._engine = _open_engine(region, settings)
        self._peer = ""
        self._local: list[int] = []
        self._remote: list[int] = []
        self._lengths: list[int] = []

    def prepare(self, case: Case, offer: Offer) -> None:
        """See `ReaderSide`."""
        self._peer = offer.address
        self._remote = [offer.base + case.layout.offset(source) for source, _ in case.moves]
        base = _address_of(self._region)
        self._local = [base + case.layout.offset(target) for _, target in case.moves]
        self._lengths = [case.block_bytes] * case.blocks

    def read(self) -> None:
        """See `ReaderSide`."""
        status = self._engine.batch_transfer_sync_read(self._peer, self._local, self._remote, self._lengths)
        if status:
            raise TransferError(f"Mooncake's engine answers {status}")

    def close(self) -> None:
        """See `ReaderSide`. The engine ends with its process."""
