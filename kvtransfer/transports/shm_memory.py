"""What an `shm` owner hands to a reader: descriptors that come with a message, and the memory behind them."""

import array
import os
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from halfmoon.errors import TransferError
from kvtransfer.region import Region
from kvtransfer.transports.lease_board import BoardView
from kvtransfer.transports.sockets import PeerClosedError, within
from kvtransfer.transports.wire import WireError

_RIGHTS_SPACE = socket.CMSG_SPACE(2 * struct.calcsize("i"))


@dataclass(frozen=True, slots=True)
class OwnerMemory:
    """The host pool of an owner, and the board that says whose its blocks are, if it keeps one."""

    region: Region
    board: BoardView | None


class ReceivedMemory:
    """Descriptors that came with a message; whoever receives them must close them."""

    def __init__(self, fds: list[int]) -> None:
        self._fds = fds

    def map(self, size: int) -> OwnerMemory:
        """Raises WireError unless the first is a sealed region of `size` bytes, and the second, if any, a board."""
        if not self._fds:
            raise WireError("the reply came without memory")
        try:
            region = Region.attach_readonly(self._fds.pop(0), size)
            region.close_fd()
            board = BoardView(self._fds.pop(0)) if self._fds else None
        except TransferError as error:
            raise WireError(error.message) from error
        return OwnerMemory(region, board)

    def close(self) -> None:
        """Closes what was not mapped; idempotent."""
        while self._fds:
            os.close(self._fds.pop())


def receive_message(sock: socket.socket, limit: int, deadline: float) -> tuple[bytes, ReceivedMemory]:
    """One message of at most `limit` bytes, and what came with it.

    Raises WireError for a longer one, PeerClosedError, TimeoutError, or OSError for a broken connection.
    """
    message, ancillary, flags, _ = within(
        sock, deadline, lambda: sock.recvmsg(limit, _RIGHTS_SPACE, socket.MSG_CMSG_CLOEXEC)
    )
    memory = ReceivedMemory(_descriptors(ancillary))
    if message and not flags & socket.MSG_TRUNC:
        return message, memory
    memory.close()
    if message:
        raise WireError("a message is longer than it may be")
    raise PeerClosedError


def _descriptors(ancillary: Iterable[tuple[int, int, bytes]]) -> list[int]:
    fds = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data[: len(data) // fds.itemsize * fds.itemsize])
    return fds.tolist()
