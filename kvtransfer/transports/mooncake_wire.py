"""What `mooncake` says besides the messages of `wire`: after the statuses of a REPLY, where the owner's engine is.

Reader: REQUEST. Owner: REPLY, statuses, PLACE. The reader's engine copies from the owner's. Reader: END. Owner:
TRAILER.
"""

import struct

from kvtransfer.transports.mooncake_engine import Place
from kvtransfer.transports.wire import WireError

_PLACE = struct.Struct("<QQH16s64s")
PLACE_BYTES = _PLACE.size
LONGEST_SEGMENT = 64


def pack_place(place: Place, protocol: str) -> bytes:
    """As bytes. Raises ValueError for too long a name."""
    name = place.segment.encode()
    if len(name) > LONGEST_SEGMENT:
        raise ValueError(f"the engine's name {place.segment} has more than {LONGEST_SEGMENT} bytes")
    return _PLACE.pack(place.engine_id, place.base, len(name), protocol.encode(), name)


def unpack_place(data: bytes, protocol: str) -> Place:
    """Raises WireError, also when the owner's engine moves bytes in another way than ours."""
    engine_id, base, length, theirs, name = _PLACE.unpack(data)
    spoken = theirs.rstrip(b"\0").decode(errors="replace")
    if spoken != protocol:
        raise WireError(f"the owner's engine speaks {spoken}, this one {protocol}")
    try:
        return Place(name[:length].decode("ascii"), engine_id, base)
    except UnicodeDecodeError as error:
        raise WireError("the owner's engine has a strange name") from error
