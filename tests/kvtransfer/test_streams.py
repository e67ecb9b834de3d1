"""How `tcp` uses the link: several connections, many blocks in flight, nothing held back."""

import asyncio
import socket
import threading
import time

import psutil

from kvtransfer import DataPlane
from kvtransfer.transports.tcp import TcpTransport
from kvtransfer.transports.tcp_server import parse_address, tune
from tests.kvtransfer.groups import MIB, MIB_BLOCKS, duo
from tests.kvtransfer.planes import Prompt, at_rest, pull, sealed

BLOCKS = 48


async def seconds_of(reader: DataPlane, prompt: Prompt) -> float:
    """From the first read to the last block verified."""
    return (await pull(reader, prompt))[1].seconds


def seconds_of_bare_socket(count: int) -> float:
    """`count` bytes over one connection of this machine, in pieces of a mebibyte, received into one place."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sending = threading.Thread(target=_send, args=(listener, count))
        sending.start()
        with socket.create_connection(listener.getsockname()) as sock:
            place, began, left = bytearray(MIB), time.perf_counter(), count
            while left:
                left -= sock.recv_into(place, min(left, MIB))
            seconds = time.perf_counter() - began
        sending.join(10)
        return seconds


def _send(listener: socket.socket, count: int) -> None:
    sock, _ = listener.accept()
    piece = memoryview(bytes(MIB))
    with sock:
        for _ in range(count // MIB):
            sock.sendall(piece)


def data_connections(owner: DataPlane) -> int:
    """Those of readers, apart from the ones to the control port."""
    control = parse_address(owner.endpoint)[1]
    connections = psutil.Process(owner.pid).net_connections("tcp")
    return sum(c.status == psutil.CONN_ESTABLISHED and c.laddr.port != control for c in connections)


async def test_a_large_prompt_moves_over_several_connections_at_more_than_a_tenth_of_the_link() -> None:
    """Case 10 of KV transfer: one thread, one piece in flight, Nagle."""
    async with duo("tcp", geometry=MIB_BLOCKS, host_blocks=BLOCKS, read_seconds=5.0) as (owner, reader):
        seconds = [await seconds_of(reader, await sealed(owner, BLOCKS)) for _ in range(3)]
        assert data_connections(owner) >= TcpTransport.streams >= 2
        bare = await asyncio.to_thread(seconds_of_bare_socket, BLOCKS * MIB)
        assert min(seconds) < 10 * bare
        await at_rest(owner, reader)


def test_small_messages_are_not_held_back() -> None:
    """Case 10 of KV transfer: Nagle is off, and dead peers are probed for."""
    with socket.socket() as sock:
        tune(sock)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
