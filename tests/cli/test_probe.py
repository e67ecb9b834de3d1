"""Asking real servers whether they are ready."""

import asyncio

import pytest

from cli.preflight.ports import free_ports
from cli.supervise.probe import is_ready, wait_ready
from cli.supervise.program import Readiness
from halfmoon.rpc import GrpcServer


async def test_a_grpc_program_is_ready_when_its_health_says_so() -> None:
    server = GrpcServer()
    await server.start()
    try:
        readiness = Readiness("127.0.0.1", server.port)
        assert not await is_ready(readiness)
        await server.set_serving(True)
        assert await is_ready(readiness)
    finally:
        await server.stop()


@pytest.mark.parametrize("status", [200, 503])
async def test_an_http_program_is_ready_when_readyz_answers_200(status: int) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await reader.readline()).startswith(b"GET /readyz ")
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await is_ready(Readiness("127.0.0.1", port, http=True)) is (status == 200)


@pytest.mark.parametrize("http", [True, False])
async def test_a_program_that_does_not_answer_is_not_ready(http: bool) -> None:
    (port,) = free_ports(1)
    assert not await is_ready(Readiness("127.0.0.1", port, http=http))


async def test_waiting_ends_with_the_first_yes() -> None:
    server = GrpcServer()
    await server.start()
    try:
        waiting = asyncio.create_task(wait_ready(Readiness("127.0.0.1", server.port)))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await server.set_serving(True)
        await asyncio.wait_for(waiting, 5)
    finally:
        await server.stop()
