"""Closing a data plane under calls: their callers get an error, and are not taken for cancelled."""

import asyncio
import os
import signal

import pytest

from halfmoon.errors import HalfmoonError, TransferError
from tests.kvtransfer.planes import offer, plane_spec, planes, pull


async def test_an_offer_that_waits_is_told_that_its_plane_was_closed() -> None:
    """A task that ended as cancelled would be missed by nobody."""
    async with planes(plane_spec("owner", 1)) as (owner,):
        await offer(owner, 32)
        waiting = asyncio.create_task(offer(owner, 1))
        await asyncio.sleep(0.1)
        os.kill(owner.pid, signal.SIGSTOP)
        closing = asyncio.create_task(owner.close())
        with pytest.raises(HalfmoonError, match="the data plane is closed"):
            await waiting
        os.kill(owner.pid, signal.SIGCONT)
        await closing


async def test_a_pull_is_told_that_its_plane_was_closed() -> None:
    async with planes(plane_spec("owner", 1), plane_spec("reader", 2)) as (owner, reader):
        prompt = await offer(owner, 2)
        pulling = asyncio.create_task(pull(reader, prompt))
        await asyncio.sleep(0.2)
        await reader.close()
        with pytest.raises(TransferError):
            await pulling


async def test_a_caller_that_is_cancelled_is_cancelled() -> None:
    async with planes(plane_spec("owner", 1)) as (owner,):
        await offer(owner, 32)
        waiting = asyncio.create_task(offer(owner, 1))
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
