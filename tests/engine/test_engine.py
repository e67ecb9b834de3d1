"""The engine's thread: whatever ends it, every request is told."""

import queue

import pytest

from halfmoon.engine.core import EngineCore
from halfmoon.engine.engine import Engine
from halfmoon.engine.request import Ended, EngineRequest, Event, Sink, Task
from halfmoon.errors import InternalError, InvalidRequestError
from halfmoon.runner.runner import Runner
from tests.engine.small import greedy, make_core, prompt

_SECONDS = 10.0


class _Stream:
    """The end of one request, awaited from the test's thread."""

    def __init__(self) -> None:
        self._ends: queue.SimpleQueue[Ended] = queue.SimpleQueue()

    def take(self, event: Event) -> None:
        """A sink."""
        if isinstance(event, Ended):
            self._ends.put(event)

    def end(self) -> Ended:
        """The last event."""
        return self._ends.get(timeout=_SECONDS)


def _post(events: list[tuple[Sink, Event]]) -> None:
    for sink, event in events:
        sink(event)


def _broken() -> None:
    raise ValueError("the device is gone")


def _request(name: str, length: int = 9) -> EngineRequest:
    return EngineRequest(name, prompt(length), greedy(4), Task.GENERATE)


@pytest.fixture
def core(runner: Runner) -> EngineCore:
    return make_core(runner)


def test_a_step_that_fails_ends_every_request_and_those_that_come_later(
    core: EngineCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "step", _broken)
    engine, running, late = Engine(core, _post), _Stream(), _Stream()
    engine.submit(_request("running"), running.take)
    engine.start()
    assert isinstance(running.end().error, InternalError)
    assert isinstance(engine.failure, InternalError)
    engine.submit(_request("late"), late.take)
    assert isinstance(late.end().error, InternalError)
    assert engine.stop(_SECONDS)


def test_requests_that_had_ended_before_a_step_failed_keep_their_end(
    core: EngineCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "step", _broken)
    engine, refused, running = Engine(core, _post), _Stream(), _Stream()
    engine.submit(_request("refused", length=0), refused.take)
    engine.submit(_request("running"), running.take)
    engine.start()
    assert isinstance(running.end().error, InternalError)
    assert isinstance(refused.end().error, InvalidRequestError)
    assert engine.stop(_SECONDS)
