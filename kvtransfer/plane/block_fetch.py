"""One batch of blocks, read and checked: the blocking work of a pull, run in a thread of its peer."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from halfmoon.errors import LeaseExpiredError, StaleIncarnationError, TransferError
from kvtransfer.checksum import block_checksum
from kvtransfer.region import Region
from kvtransfer.transports.base import BlockRead, ReadKey, ReadStatus, StopSignal, Transport


class TransportFailedError(TransferError):
    """The transport is to blame, or may be: another one can do better. `timed_out`: it took all the time there was."""

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


@dataclass(frozen=True, slots=True)
class WantedBlock:
    """Block `index` of a handle: what to read, the checksum that it must have, and the host block that it fills."""

    index: int
    read: BlockRead
    checksum: int
    host_block: int


def fetch_blocks(
    transport: Transport,
    region: Region,
    key: ReadKey,
    wanted: Sequence[WantedBlock],
    *,
    read_seconds: float,
    deadline: float,
    stop: StopSignal,
) -> None:
    """Returns when all blocks are in place and verified; nothing writes to them any more, however it ends.

    Raises TransferError, or a subclass that says what was in doubt, when one of them cannot be trusted.
    """
    bound = min(deadline, time.monotonic() + read_seconds)
    statuses = transport.read_batch(key, [block.read for block in wanted], deadline=bound, stop=stop)
    for block, status in zip(wanted, statuses, strict=True):
        if status is not ReadStatus.OK:
            raise _error(status, block.index, transport.name)
    for block in wanted:
        if block_checksum(region.view(block.read.local_offset, block.read.length)) != block.checksum:
            raise TransportFailedError(
                f"block {block.index} came over {transport.name} with another checksum than its owner's"
            )


def _error(status: ReadStatus, index: int, transport: str) -> TransferError:
    message = f"block {index} could not be read over {transport}: {status.name}"
    if status is ReadStatus.STALE_INCARNATION:
        return StaleIncarnationError(message)
    if status is ReadStatus.LEASE_EXPIRED:
        return LeaseExpiredError(message)
    if status is ReadStatus.STOPPED:
        return TransferError(message)
    return TransportFailedError(message, timed_out=status is ReadStatus.TIMEOUT)
