"""One batch over one connection, with every ending turned into statuses."""

from collections.abc import Callable, Sequence

from kvtransfer.transports.base import BlockRead, ReadKey, ReadStatus, StopSignal
from kvtransfer.transports.connection import Connection, ConnectionPool
from kvtransfer.transports.sockets import PeerClosedError
from kvtransfer.transports.wire import WireError


class BatchRefusedError(Exception):
    """The whole batch ends with this status; its connection is not used again."""

    def __init__(self, status: ReadStatus) -> None:
        super().__init__(status.name)
        self.status = status


Exchange = Callable[[Connection], list[ReadStatus]]


def run_batch(
    pool: ConnectionPool,
    key: ReadKey,
    reads: Sequence[BlockRead],
    exchange: Exchange,
    *,
    deadline: float,
    stop: StopSignal,
) -> list[ReadStatus]:
    """Lends a connection to the handle's owner and runs `exchange` on it, which may raise BatchRefusedError."""
    if not reads:
        return []
    try:
        with pool.lend(deadline, stop) as connection:
            if connection.session.greeting.incarnation != key.incarnation:
                raise BatchRefusedError(ReadStatus.STALE_INCARNATION)
            return exchange(connection)
    except BatchRefusedError as error:
        status = error.status
    except TimeoutError:
        status = ReadStatus.TIMEOUT
    except WireError:
        status = ReadStatus.PROTOCOL
    except (OSError, PeerClosedError):
        status = ReadStatus.UNREACHABLE
    return [ReadStatus.STOPPED if stop.stopped else status] * len(reads)


def require_ok(status: ReadStatus) -> None:
    """Raises BatchRefusedError for anything else."""
    if status is not ReadStatus.OK:
        raise BatchRefusedError(status)
