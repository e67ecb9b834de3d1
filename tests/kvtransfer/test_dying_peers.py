"""Owners that are killed, stopped, terminated and restarted while others read from them: real signals."""

import asyncio
import os
import signal
import socket
import time
from contextlib import aclosing

import psutil
import pytest

from halfmoon.errors import StaleIncarnationError, TransferError
from kvtransfer import PullComplete, PulledBlock
from tests.kvtransfer.groups import duo, free_port, spec, standing_still, trio
from tests.kvtransfer.kinds import NAMES
from tests.kvtransfer.planes import at_rest, offer, planes, pull, sealed, take
from tests.kvtransfer.rig import eventually


@pytest.fixture(params=NAMES)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_a_killed_owner_fails_its_pulls_at_once_and_nobody_elses(transport: str) -> None:
    async with trio(transport) as (ill, well, reader):
        waiting = await offer(ill, 4)
        await waiting.publish(2)
        pulling = asyncio.create_task(pull(reader, waiting))
        healthy = await offer(well, 4)
        other = asyncio.create_task(pull(reader, healthy))
        await asyncio.sleep(0.2)
        os.kill(ill.pid, signal.SIGKILL)
        began = time.monotonic()
        with pytest.raises(TransferError):
            await pulling
        assert time.monotonic() - began < 1.0
        await healthy.publish(4)
        await healthy.seal()
        await other
        with pytest.raises(TransferError):
            await pull(reader, waiting)
        await at_rest(reader, well)


async def test_the_memory_of_a_killed_owner_is_let_go() -> None:
    async with duo("shm") as (ill, reader):
        await pull(reader, await sealed(ill, 2))
        assert memory_maps(reader.pid) == 4
        os.kill(ill.pid, signal.SIGKILL)
        await eventually(lambda: memory_maps(reader.pid) == 2)


def memory_maps(pid: int) -> int:
    """How many host pools, and boards of leases, a process maps: one of each of its own and of every owner."""
    return sum("halfmoon-kv" in mapping.path for mapping in psutil.Process(pid).memory_maps(grouped=False))


async def test_a_stopped_owner_costs_a_deadline_and_delays_nobody_else(transport: str) -> None:
    """Case 6 of KV transfer: one peer's trouble never delays another's transfers."""
    async with trio(transport) as (ill, well, reader):
        prompt = await sealed(ill, 4)
        await pull(reader, await sealed(ill, 1))
        async with standing_still(ill):
            began = time.monotonic()
            stuck = [asyncio.create_task(pull(reader, prompt, timeout=2.0)) for _ in range(6)]
            await asyncio.sleep(0.05)
            for _ in range(5):
                await pull(reader, await sealed(well, 4))
            assert not any(task.done() for task in stuck)
            results = await asyncio.gather(*stuck, return_exceptions=True)
            assert all(isinstance(result, TransferError) for result in results)
            assert time.monotonic() - began < 4.0
        await at_rest(reader, well)


async def test_a_pull_from_a_stopped_owner_can_be_cancelled_within_a_second(transport: str) -> None:
    async with duo(transport) as (ill, reader):
        await pull(reader, await sealed(ill, 1))
        prompt = await sealed(ill, 4)
        async with standing_still(ill):
            pulling = asyncio.create_task(pull(reader, prompt))
            await asyncio.sleep(0.1)
            began = time.monotonic()
            pulling.cancel()
            await asyncio.gather(pulling, return_exceptions=True)
            await at_rest(reader)
            assert time.monotonic() - began < 1.0


async def test_an_owner_that_stops_in_the_middle_of_a_pull_is_noticed_where_it_must_take_part(transport: str) -> None:
    """Over `shm` it need not: its lease runs on, and its memory stays as it is."""
    async with duo(transport) as (ill, reader):
        prompt = await sealed(ill, 8)
        async with aclosing(reader.pull("request", prompt.handle, range(8), 5.0)) as events:
            arrived = [await anext(events) for _ in range(4)]
            async with standing_still(ill):
                for event in arrived:
                    assert isinstance(event, PulledBlock)
                    await take(reader, prompt, event)
                if transport == "shm":
                    for event in [await anext(events) for _ in range(4)]:
                        assert isinstance(event, PulledBlock)
                        await take(reader, prompt, event)
                    assert isinstance(await anext(events), PullComplete)
                else:
                    with pytest.raises(TransferError):
                        await anext(events)
        await at_rest(reader)


async def test_a_terminated_owner_tells_its_readers_why() -> None:
    async with duo("shm") as (ill, reader):
        prompt = await offer(ill, 4)
        await prompt.publish(1)
        pulling = asyncio.create_task(pull(reader, prompt))
        await asyncio.sleep(0.2)
        os.kill(ill.pid, signal.SIGTERM)
        with pytest.raises(TransferError, match="the worker stops"):
            await pulling
        await at_rest(reader)


async def test_an_owner_restarted_at_the_same_address_is_a_stranger(transport: str) -> None:
    """Case 7 of KV transfer: the incarnation is part of every read, and a mismatch drops what is cached."""
    ports = {"port": free_port(), "tcp_port": free_port()}
    async with planes(spec("reader", 3, transport)) as (reader,):
        async with planes(spec("owner", 1, transport, **ports)) as (old,):
            old_prompt = await sealed(old, 2)
            await pull(reader, await sealed(old, 2))
            os.kill(old.pid, signal.SIGKILL)
            await asyncio.shield(old.died)
        async with planes(spec("owner", 2, transport, **ports)) as (new,):
            assert new.endpoint == old_prompt.handle.endpoint
            with pytest.raises(StaleIncarnationError):
                await pull(reader, old_prompt)
            await pull(reader, await sealed(new, 2))
            await at_rest(reader, new)


async def test_an_address_where_nobody_answers_costs_no_more_than_the_handshake() -> None:
    async with duo("shm") as (ill, reader):
        prompt = await sealed(ill, 1)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            prompt.handle.endpoint = f"127.0.0.1:{silent.getsockname()[1]}"
            began = time.monotonic()
            with pytest.raises(TransferError):
                await pull(reader, prompt)
            assert time.monotonic() - began < 2.5
        await at_rest(reader)
