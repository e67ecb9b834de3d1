"""The messages between a transport and its server, little-endian, the same over `shm` and `tcp`.

Server: GREETING at once. Reader: REQUEST and its ranges. Server: REPLY with one status a range; then over `tcp` the
bytes of the ranges that are OK, in order; over `shm` the reader copies them and sends END. Server: TRAILER, whose
status is the last word on all of them. Then the next request may follow. Whoever sees an error closes the connection.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from kvtransfer.transports.base import BlockRead, ReadStatus

MAGIC = b"HMkv"
VERSION = 1
MAX_READS = 1024
"""Ranges of one request."""

WANT_MEMORY = 1
"""Request flag of `shm`: the reply shall carry the descriptor of the region."""

_GREETING = struct.Struct("<4sHHQ16sQ")
_REQUEST = struct.Struct("<4sHHIIQ16s16s32s")
_RANGE = struct.Struct("<IQQ")
_REPLY = struct.Struct("<4sHHII32s")
_TRAILER = struct.Struct("<4sHHI")

_STATUSES = {status.value: status for status in ReadStatus}

GREETING_BYTES = _GREETING.size
REQUEST_BYTES = _REQUEST.size
RANGE_BYTES = _RANGE.size
REPLY_BYTES = _REPLY.size
TRAILER_BYTES = _TRAILER.size


class WireError(Exception):
    """The peer sent something that this protocol does not know."""


def _fields(layout: struct.Struct, data: bytes) -> tuple[Any, ...]:
    if len(data) != layout.size:
        raise WireError(f"a message of {len(data)} bytes, not {layout.size}")
    return layout.unpack(data)


def _check(magic: bytes, version: int) -> None:
    if magic != MAGIC or version != VERSION:
        raise WireError(f"version {version} of {magic!r}, not {VERSION} of {MAGIC!r}")


def _status(number: int) -> ReadStatus:
    try:
        return _STATUSES[number]
    except KeyError as error:
        raise WireError(f"unknown status {number}") from error


@dataclass(frozen=True, slots=True)
class Greeting:
    """Who answers here; `nonce` is part of every proof of this connection, `region_bytes` the host pool's size."""

    incarnation: int
    nonce: bytes
    region_bytes: int

    def pack(self) -> bytes:
        """As bytes."""
        return _GREETING.pack(MAGIC, VERSION, 0, self.incarnation, self.nonce, self.region_bytes)

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Raises WireError."""
        magic, version, _, incarnation, nonce, region_bytes = _fields(_GREETING, data)
        _check(magic, version)
        return cls(incarnation, nonce, region_bytes)


@dataclass(frozen=True, slots=True)
class Request:
    """A batch of one handle. `proof` is the reader's, over both nonces and all that the request says."""

    flags: int
    sequence: int
    count: int
    incarnation: int
    tag: bytes
    nonce: bytes
    proof: bytes

    def pack(self) -> bytes:
        """As bytes, without the ranges."""
        return _REQUEST.pack(
            MAGIC, VERSION, self.flags, self.sequence, self.count, self.incarnation, self.tag, self.nonce, self.proof
        )

    def signed_part(self) -> bytes:
        """What the proof covers, besides the server's nonce and the ranges."""
        return self.pack()[: -len(self.proof)]

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Raises WireError."""
        magic, version, *fields = _fields(_REQUEST, data)
        _check(magic, version)
        request = cls(*fields)
        if not 0 < request.count <= MAX_READS:
            raise WireError(f"{request.count} ranges in a request")
        return request


def pack_ranges(reads: Sequence[BlockRead]) -> bytes:
    """Remote regions, offsets and lengths."""
    pack = _RANGE.pack
    return b"".join([pack(region, offset, length) for region, offset, length, _ in reads])


def unpack_ranges(data: bytes) -> list[BlockRead]:
    """The reverse; where they go at the reader is not known to the owner, and 0."""
    return [BlockRead(region, offset, length, 0) for region, offset, length in _RANGE.iter_unpack(data)]


@dataclass(frozen=True, slots=True)
class Reply:
    """`status` of the whole request; where it is OK, one status a range follows, and `proof` is the owner's."""

    status: ReadStatus
    sequence: int
    count: int
    proof: bytes

    def pack(self) -> bytes:
        """As bytes, without the statuses."""
        return _REPLY.pack(MAGIC, VERSION, self.status, self.sequence, self.count, self.proof)

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Raises WireError."""
        magic, version, status, sequence, count, proof = _fields(_REPLY, data)
        _check(magic, version)
        return cls(_status(status), sequence, count, proof)


def pack_statuses(statuses: Sequence[ReadStatus]) -> bytes:
    """One byte each."""
    return bytes(statuses)


def unpack_statuses(data: bytes) -> list[ReadStatus]:
    """Raises WireError."""
    if not any(data):
        return [ReadStatus.OK] * len(data)
    return [_status(number) for number in data]


@dataclass(frozen=True, slots=True)
class Trailer:
    """From the owner, the last word; from a reader over `shm`, with status OK: it touches the blocks no more."""

    status: ReadStatus
    sequence: int

    def pack(self) -> bytes:
        """As bytes."""
        return _TRAILER.pack(MAGIC, VERSION, self.status, self.sequence)

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Raises WireError."""
        magic, version, status, sequence = _fields(_TRAILER, data)
        _check(magic, version)
        return cls(_status(status), sequence)
