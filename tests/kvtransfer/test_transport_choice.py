"""Which transport is taken after failures, and when a failed one is tried again. Time is passed in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtransfer.core.transport_choice import Reason, Setbacks

PEER = ("10.0.0.5:7100", 1)
NAMES = ("shm", "mooncake", "tcp")


def test_the_first_is_taken_when_nothing_has_failed() -> None:
    choice = Setbacks().choose(PEER, NAMES, 0.0)
    assert (choice.name, choice.reason) == ("shm", Reason.BEST)


def test_a_failed_one_is_left_for_the_next_and_tried_again_when_its_time_comes() -> None:
    setbacks = Setbacks(first=1.0)
    setbacks.failed(PEER, "shm", 10.0)
    fallback = setbacks.choose(PEER, NAMES, 10.9)
    assert (fallback.name, fallback.reason) == ("mooncake", Reason.FALLBACK)
    assert fallback.detail == "shm is left alone for 0.1 s, failures: 1"
    retry = setbacks.choose(PEER, NAMES, 11.0)
    assert (retry.name, retry.reason) == ("shm", Reason.RETRY)


def test_each_failure_doubles_the_time_up_to_a_bound() -> None:
    setbacks, now, times = Setbacks(first=1.0, longest=60.0), 0.0, []
    for _ in range(9):
        setbacks.failed(PEER, "shm", now)
        until = now
        while setbacks.choose(PEER, NAMES, until).name != "shm":
            until += 0.5
        times.append(until - now)
        now = until
    assert times == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_failures_of_reads_that_ran_together_count_once() -> None:
    setbacks = Setbacks(first=1.0)
    for _ in range(8):
        setbacks.failed(PEER, "shm", 10.0)
    assert setbacks.choose(PEER, NAMES, 11.0).name == "shm"


def test_success_forgets_what_failed() -> None:
    setbacks = Setbacks()
    setbacks.failed(PEER, "shm", 10.0)
    setbacks.worked(PEER, "shm")
    assert setbacks.choose(PEER, NAMES, 10.0).reason is Reason.BEST


def test_when_all_have_failed_the_one_whose_time_comes_first_is_taken() -> None:
    setbacks = Setbacks(first=1.0)
    for index, name in enumerate(("tcp", "shm", "mooncake")):
        setbacks.failed(PEER, name, index / 10)
    choice = setbacks.choose(PEER, NAMES, 0.5)
    assert (choice.name, choice.reason) == ("tcp", Reason.LAST_RESORT)


def test_another_peer_or_the_next_process_at_its_address_is_judged_anew() -> None:
    setbacks = Setbacks()
    setbacks.failed(PEER, "shm", 10.0)
    for other in (("10.0.0.6:7100", 1), ("10.0.0.5:7100", 2)):
        assert setbacks.choose(other, NAMES, 10.0).reason is Reason.BEST


def test_nothing_to_choose_from_is_a_bug() -> None:
    with pytest.raises(ValueError, match="no transport"):
        Setbacks().choose(PEER, (), 0.0)


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.booleans(), st.floats(0.0, 30.0)), max_size=60))
def test_whatever_happens_every_transport_is_tried_again_within_the_longest_time(
    events: list[tuple[str, bool, float]],
) -> None:
    setbacks, now = Setbacks(first=1.0, longest=60.0), 0.0
    for name, works, pause in events:
        if works:
            setbacks.worked(PEER, name)
        else:
            setbacks.failed(PEER, name, now)
        now += pause
        assert setbacks.choose(PEER, NAMES, now).name in NAMES
    assert setbacks.choose(PEER, NAMES, now + 60.0).name == NAMES[0]
