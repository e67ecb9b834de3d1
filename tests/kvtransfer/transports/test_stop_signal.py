"""What a stop signal promises to those who attach to it."""

import threading

import pytest

from kvtransfer.transports.base import StopSignal


def test_setting_runs_what_is_attached_each_time() -> None:
    stop, runs = StopSignal(), []
    with stop.attached(lambda: runs.append("a")), stop.attached(lambda: runs.append("b")):
        stop.set()
    assert runs == ["a", "b"]
    assert stop.stopped


def test_attaching_to_a_signal_that_is_set_runs_at_once() -> None:
    stop, runs = StopSignal(), []
    stop.set()
    with stop.attached(lambda: runs.append("a")):
        assert runs == ["a"]


def test_what_has_left_runs_no_more_even_after_an_error() -> None:
    stop, runs = StopSignal(), []
    with pytest.raises(OSError, match="broken"), stop.attached(lambda: runs.append("a")):
        raise OSError("broken")
    stop.set()
    assert runs == []


def test_leaving_waits_for_an_action_under_way() -> None:
    """So that what the action touches may be closed right after."""
    stop, inside, go_on = StopSignal(), threading.Event(), threading.Event()
    closed: list[bool] = []

    def action() -> None:
        inside.set()
        go_on.wait(5)
        closed.append(False)

    with stop.attached(action):
        setter = threading.Thread(target=stop.set)
        setter.start()
        assert inside.wait(5)
        threading.Timer(0.05, go_on.set).start()
    closed.append(True)
    setter.join(5)
    assert closed == [False, True]
