"""A worker ends by itself when it cannot go on, and at once when it is told to."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from cli.worker_health import until_stopped
from halfmoon.engine.core import EngineCore
from halfmoon.engine.engine import Engine
from halfmoon.engine.request import Event, Sink
from halfmoon.runner.runner import Runner
from tests.engine.small import make_core

_SOON = 10.0


def _drop(events: list[tuple[Sink, Event]]) -> None:
    del events


@pytest.fixture
def core(runners: tuple[Runner, Runner]) -> EngineCore:
    return make_core(runners[0])


@pytest.fixture
def engine(core: EngineCore) -> Iterator[Engine]:
    engine = Engine(core, _drop)
    yield engine
    assert engine.stop(_SOON)


async def _health(engine: Engine, stopping: asyncio.Event, died: "asyncio.Future[int]") -> bool:
    watching = until_stopped(stopping, engine, died, interval=0.02, hang_seconds=3.0)
    return await asyncio.wait_for(watching, _SOON)


async def test_an_idle_worker_waits_until_it_is_told_to_stop(engine: Engine) -> None:
    engine.start()
    stopping = asyncio.Event()
    watching = asyncio.create_task(_health(engine, stopping, asyncio.get_running_loop().create_future()))
    await asyncio.sleep(0.2)
    assert not watching.done()
    stopping.set()
    assert await watching


async def test_an_engine_that_fails_ends_its_worker(
    engine: Engine, core: EngineCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise ValueError("the device is gone")

    monkeypatch.setattr(core, "step", broken)
    engine.start()
    assert not await _health(engine, asyncio.Event(), asyncio.get_running_loop().create_future())


async def test_an_engine_that_hangs_ends_its_worker(
    engine: Engine, core: EngineCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    monkeypatch.setattr(core, "step", lambda: released.wait(_SOON))
    engine.start()
    try:
        assert not await _health(engine, asyncio.Event(), asyncio.get_running_loop().create_future())
    finally:
        released.set()


async def test_a_data_plane_that_dies_ends_its_worker(engine: Engine) -> None:
    engine.start()
    died: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    died.set_result(1)
    assert not await _health(engine, asyncio.Event(), died)
