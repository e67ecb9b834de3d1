"""The reader's side of `mooncake`: the owner grants, Mooncake's engine copies, the owner has the last word."""

import threading
import time
from collections.abc import Sequence

from halfmoon.errors import ConfigError
from kvtransfer.region import Region
from kvtransfer.transports import wire
from kvtransfer.transports.base import BlockRead, ReadKey, ReadStatus, StopSignal
from kvtransfer.transports.batch import BatchRefusedError, require_ok, run_batch
from kvtransfer.transports.connection import Connection, ConnectionPool
from kvtransfer.transports.mooncake_channel import EngineChannel
from kvtransfer.transports.mooncake_engine import Place, protocol
from kvtransfer.transports.mooncake_read import Copy
from kvtransfer.transports.mooncake_wire import PLACE_BYTES, unpack_place
from kvtransfer.transports.sockets import PeerClosedError, receive_exactly, send_all
from kvtransfer.transports.tcp import connect
from kvtransfer.transports.tcp_server import parse_address


class MooncakeTransport:
    """A `Transport` to the server at `address` (`host:port`). `host` is what peers may call this process's engine."""

    name = "mooncake"
    streams = 2

    def __init__(self, address: str, *, connect_seconds: float, host: str = "127.0.0.1") -> None:
        peer = parse_address(address)
        self._pool = ConnectionPool(lambda deadline: connect(peer, deadline), connect_seconds=connect_seconds)
        self._host = host
        self._lock = threading.Lock()
        self._region: Region | None = None
        self._channel: EngineChannel | None = None
        self._closed = False

    def register(self, region: Region) -> None:
        """See `Transport`."""
        self._region = region

    def read_batch(
        self, key: ReadKey, reads: Sequence[BlockRead], *, deadline: float, stop: StopSignal
    ) -> list[ReadStatus]:
        """See `Transport`. Over RDMA it can take longer than the deadline, until the engine gives up."""

        def exchange(connection: Connection) -> list[ReadStatus]:
            return self._exchange(connection, key, reads, deadline, stop)

        return run_batch(self._pool, key, reads, exchange, deadline=deadline, stop=stop)

    def close(self) -> None:
        """See `Transport`."""
        self._pool.close()
        with self._lock:
            self._closed = True
            channel = self._channel
        if channel is not None:
            self._retire(channel, distrusted=False)

    def _exchange(
        self, connection: Connection, key: ReadKey, reads: Sequence[BlockRead], deadline: float, stop: StopSignal
    ) -> list[ReadStatus]:
        sock, session = connection.sock, connection.session
        region = self._registered(reads)
        send_all(sock, [memoryview(session.request(key, reads))], deadline)
        reply = wire.Reply.unpack(receive_exactly(sock, wire.REPLY_BYTES, deadline))
        require_ok(reply.status)
        said = receive_exactly(sock, len(reads), deadline)
        require_ok(session.check_reply(key, reply, said))
        statuses = wire.unpack_statuses(said)
        place = unpack_place(receive_exactly(sock, PLACE_BYTES, deadline), protocol())
        granted = [index for index, status in enumerate(statuses) if status is ReadStatus.OK]
        copies = [Copy(reads[index].offset, reads[index].length, reads[index].local_offset) for index in granted]
        succeeded = self._copy(self._channel_to(place, region), copies, deadline, stop)
        for index, each in zip(granted, succeeded, strict=True):
            statuses[index] = ReadStatus.OK if each else ReadStatus.UNREACHABLE
        send_all(sock, [memoryview(session.end())], deadline)
        require_ok(session.check_trailer(wire.Trailer.unpack(receive_exactly(sock, wire.TRAILER_BYTES, deadline))))
        return statuses

    def _copy(
        self, channel: EngineChannel, copies: Sequence[Copy], deadline: float, stop: StopSignal
    ) -> Sequence[bool]:
        """Which copies succeeded. However it ends, nothing is written any more."""
        read = channel.start(copies)
        with stop.attached(read.wake):
            ended = read.wait(max(0.0, deadline - time.monotonic()))
        if not ended:
            read.abandon()
            self._retire(channel, distrusted=True)
            if stop.stopped:
                raise BatchRefusedError(ReadStatus.STOPPED)
            raise PeerClosedError if self._closed else TimeoutError
        if not all(read.succeeded):
            self._retire(channel, distrusted=True)
        return read.succeeded

    def _channel_to(self, place: Place, region: Region) -> EngineChannel:
        """The one that is there, unless the owner's engine is another by now."""
        with self._lock:
            if self._closed:
                raise PeerClosedError
            if self._channel is not None and self._channel.place != place:
                self._channel.retire(distrusted=True)
                self._channel = None
            if self._channel is None:
                try:
                    self._channel = EngineChannel(self._host, region, place)
                except ConfigError as error:
                    raise PeerClosedError from error
            return self._channel

    def _retire(self, channel: EngineChannel, *, distrusted: bool) -> None:
        with self._lock:
            if self._channel is channel:
                self._channel = None
        channel.retire(distrusted=distrusted)

    def _registered(self, reads: Sequence[BlockRead]) -> Region:
        """The region, which has room for the reads."""
        if self._region is None:
            raise RuntimeError("no region is registered")
        for read in reads:
            self._region.view(read.local_offset, read.length)
        return self._region
