"""Work in threads and in the background that outlives its caller on purpose."""

import asyncio
import threading
import time
import traceback
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from halfmoon.errors import TransferError, UnavailableError
from kvtransfer.plane.tasks import first_error_group, let_go, run_stoppable, wait_done
from kvtransfer.settling import Settling
from kvtransfer.transports.base import StopSignal


def work_until(stop: StopSignal, log: list[str]) -> None:
    """A thread that takes a moment to let go."""
    stopped = threading.Event()
    with stop.attached(stopped.set):
        stopped.wait(5)
    time.sleep(0.05)
    log.append("let go")


async def test_cancelled_work_is_over_before_the_cancellation_is_seen() -> None:
    stop, log = StopSignal(), list[str]()
    with ThreadPoolExecutor(1) as threads:
        running = asyncio.create_task(run_stoppable(threads.submit(work_until, stop, log), stop))
        await asyncio.sleep(0.02)
        running.cancel()
        await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert log == ["let go"]


async def test_work_that_has_not_begun_is_cancelled_without_waiting_for_its_turn() -> None:
    first, second, log = StopSignal(), StopSignal(), list[str]()
    with ThreadPoolExecutor(1) as threads:
        threads.submit(work_until, first, log)
        waiting = asyncio.create_task(run_stoppable(threads.submit(work_until, second, log), second))
        await asyncio.sleep(0.02)
        waiting.cancel()
        async with asyncio.timeout(1):
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert log == []
        first.set()


async def test_errors_of_a_thread_reach_the_caller() -> None:
    def fail() -> None:
        raise TransferError("broken")

    with ThreadPoolExecutor(1) as threads, pytest.raises(TransferError, match="broken"):
        await run_stoppable(threads.submit(fail), StopSignal())


async def test_waiting_survives_cancellation() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(wait_done(future))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0.01)
    assert not waiting.done()
    future.set_result(None)
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_group_raises_its_first_error_as_itself() -> None:
    async def fail() -> None:
        raise TransferError("first")

    async def fail_inside() -> None:
        async with first_error_group() as outer, first_error_group() as inner:
            outer.create_task(asyncio.sleep(5))
            inner.create_task(fail())
            await asyncio.sleep(5)

    with pytest.raises(TransferError, match="first"):
        await fail_inside()


async def test_settling_goes_on_when_its_caller_is_cancelled() -> None:
    settling, log = Settling(), list[str]()

    async def work() -> None:
        await asyncio.sleep(0.05)
        log.append("done")

    caller = asyncio.create_task(settling.run(work()))
    await asyncio.sleep(0.01)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert log == []
    await settling.close()
    assert log == ["done"]


async def test_a_closed_settling_takes_nothing() -> None:
    settling, log = Settling(), list[str]()
    await settling.close()

    async def work() -> None:
        log.append("done")

    settling.start(work())
    with pytest.raises(UnavailableError):
        await settling.run(work())
    await asyncio.sleep(0)
    assert log == []


def test_a_stop_runs_what_is_attached_and_nothing_after() -> None:
    stop, calls = StopSignal(), list[str]()
    with stop.attached(lambda: calls.append("early")):
        pass
    with stop.attached(lambda: calls.append("attached")):
        stop.set()
    with stop.attached(lambda: calls.append("late")):
        pass
    assert (calls, stop.stopped) == (["attached", "late"], True)


class Held:
    """Something that can be seen to go away."""


async def test_an_error_that_lets_go_keeps_its_traceback_and_nothing_that_it_came_through() -> None:
    gone: list[weakref.ref[Held]] = []

    async def fail() -> None:
        held = Held()
        gone.append(weakref.ref(held))
        try:
            raise OSError("broken")
        except OSError as error:
            raise TransferError("no bytes") from error

    try:
        async with first_error_group() as group:
            group.create_task(fail())
    except TransferError as error:
        caught = error
    let_go(caught)
    assert gone[0]() is None
    assert "in fail" in "".join(traceback.format_exception(caught))
