"""Connections that bring no request, or half of one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import gateway.server
from tests.gateway.fakes import Served, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

LATE = 0.3
PROBE = b"GET /livez HTTP/1.1\r\nhost: here\r\n\r\n"

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time for a head is short."""
    monkeypatch.setattr(gateway.server, "_KEEP_ALIVE_SECONDS", LATE)


@asynccontextmanager
async def connected(served: Served) -> AsyncIterator[Stream]:
    """A connection to the gateway."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.gateway.port)
    try:
        yield reader, writer
    finally:
        writer.close()


@pytest.mark.parametrize("sent", [b"", b"POST /v1/completions HTTP/1.1\r\nhost: he"])
async def test_a_connection_without_a_whole_head_is_closed(sent: bytes) -> None:
    async with serving() as served, connected(served) as (reader, writer):
        writer.write(sent)
        assert await asyncio.wait_for(reader.read(), 10 * LATE) == b""


async def test_a_head_that_trickles_in_is_not_waited_for() -> None:
    async with serving() as served, connected(served) as (reader, writer):
        closed = asyncio.create_task(reader.read())
        for byte in PROBE[:-2]:
            if closed.done():
                break
            writer.write(bytes((byte,)))
            await asyncio.sleep(LATE / 10)
        assert closed.done()


async def test_half_a_second_request_does_not_keep_a_connection() -> None:
    async with serving() as served, connected(served) as (reader, writer):
        writer.write(PROBE)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.write(PROBE[:10])
        assert b"HTTP" not in await asyncio.wait_for(reader.read(), 10 * LATE)


async def test_a_body_may_take_longer_than_a_head() -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nhost: here\r\ncontent-length: 16\r\n\r\n"
    async with serving() as served, connected(served) as (reader, writer):
        writer.write(head + b'{"prompt": ')
        await asyncio.sleep(2 * LATE)
        writer.write(b'"Hi"}')
        assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 200")
