"""Registration, heartbeats, death, and the router's own accounts of load."""

from dataclasses import replace

import pytest

from halfmoon.errors import IncompatibleError, InvalidRequestError, UnknownWorkerError
from router.fleet import CacheChange, Fleet
from router.worker import Load, Role, State, Worker
from tests.router.builders import FINGERPRINT, GEOMETRY, description, worker

LOAD = Load(running=2, waiting=1, pages_total=100, pages_free=60, prefill_tokens_queued=500)


def fleet(dropped: list[tuple[str, str]] | None = None) -> Fleet:
    def on_drop(worker: Worker, reason: str) -> None:
        if dropped is not None:
            dropped.append((worker.worker_id, reason))

    return Fleet(FINGERPRINT, dead_after=4.0, on_drop=on_drop)


def beat(to: Fleet, now: float, state: State = State.READY, incarnation: int = 1, load: Load = LOAD) -> bool:
    change = CacheChange(1, True, [b"page"])
    return to.heartbeat("w", incarnation, state=state, load=load, cache=change, now=now)


def test_only_ready_workers_are_available() -> None:
    workers = fleet()
    workers.register(description("w"), State.STARTING, 0.0)
    assert workers.available == []
    beat(workers, 1.0)
    assert [worker.worker_id for worker in workers.available] == ["w"]
    beat(workers, 2.0, State.DRAINING)
    assert workers.available == []
    assert len(workers.workers) == 1


def test_a_worker_is_dead_after_four_seconds_of_silence() -> None:
    dropped: list[tuple[str, str]] = []
    workers = fleet(dropped)
    registered = workers.register(description("w"), State.READY, 0.0)
    beat(workers, 1.0)
    workers.expire(5.0)
    assert len(workers.available) == 1
    workers.expire(5.1)
    assert workers.workers == []
    assert dropped == [("w", "silent for 4.1 s")]
    assert registered.gone == "silent for 4.1 s"
    assert len(workers.prefixes) == 0


def test_heartbeats_of_unknown_workers_and_incarnations_are_refused() -> None:
    workers = fleet()
    with pytest.raises(UnknownWorkerError):
        beat(workers, 0.0)
    workers.register(description("w", incarnation=2), State.READY, 0.0)
    with pytest.raises(UnknownWorkerError):
        beat(workers, 0.0, incarnation=1)


def test_another_incarnation_replaces_the_one_before_with_its_cache() -> None:
    dropped: list[tuple[str, str]] = []
    workers = fleet(dropped)
    workers.register(description("w"), State.READY, 0.0)
    beat(workers, 0.5)
    workers.register(description("w", incarnation=2), State.READY, 1.0)
    assert [worker.description.incarnation for worker in workers.workers] == [2]
    assert dropped == [("w", "replaced by another incarnation")]
    assert len(workers.prefixes) == 0


def test_a_worker_that_stopped_is_gone() -> None:
    workers = fleet()
    workers.register(description("w"), State.READY, 0.0)
    assert not beat(workers, 1.0, State.STOPPED)
    assert workers.workers == []


def test_another_fingerprint_is_refused_and_both_are_named() -> None:
    with pytest.raises(IncompatibleError, match=rf"{'0' * 32}.*{FINGERPRINT}"):
        fleet().register(description("w", fingerprint="0" * 32), State.READY, 0.0)


def test_another_geometry_is_refused_unless_nobody_else_is_there() -> None:
    other = replace(GEOMETRY, dtype="bfloat16")
    workers = fleet()
    workers.register(description("w"), State.READY, 0.0)
    with pytest.raises(IncompatibleError, match=r"bfloat16.*float32"):
        workers.register(description("v", geometry=other), State.READY, 0.0)
    workers.register(description("w", incarnation=2, geometry=other), State.READY, 0.0)
    assert workers.geometry == other


def test_a_registration_that_lacks_something_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="incarnation"):
        fleet().register(description("w", incarnation=0), State.READY, 0.0)


def test_a_gap_in_the_cache_changes_asks_for_a_snapshot() -> None:
    workers = fleet()
    workers.register(description("w"), State.READY, 0.0)
    assert not beat(workers, 1.0)
    gap = CacheChange(7, False, [b"other"])
    assert workers.heartbeat("w", 1, state=State.READY, load=LOAD, cache=gap, now=2.0)


def test_the_context_is_what_every_worker_can_hold() -> None:
    workers = fleet()
    assert workers.context_limit(4096) == 4096
    workers.register(description("w", max_model_len=1024), State.READY, 0.0)
    assert workers.context_limit(4096) == 1024
    assert workers.context_limit(512) == 512


def test_a_suspect_gets_nothing_until_it_reports() -> None:
    workers = fleet()
    registered = workers.register(description("w"), State.READY, 0.0)
    registered.suspect = True
    assert workers.available == []
    beat(workers, 1.0)
    assert workers.available == [registered]


def test_load_is_what_was_reported_and_what_this_router_did_since() -> None:
    subject = worker("d0", queued=100, running=2)
    assignment = subject.assign(prefill_tokens=50, pages=10)
    assert (subject.prefill_tokens, subject.requests, subject.pages_used) == (150, 3, 10)
    assignment.prefill_left(20)
    assert subject.prefill_tokens == 120
    assignment.close()
    assignment.close()
    assert (subject.prefill_tokens, subject.requests, subject.pages_used) == (100, 2, 0)


def test_a_report_that_holds_an_assignment_already_does_not_count_it_twice() -> None:
    subject = worker("d0")
    assignment = subject.assign(prefill_tokens=50, pages=10)
    subject.report(State.READY, replace(LOAD, prefill_tokens_queued=80, running=3, waiting=0), 1.0)
    assert (subject.prefill_tokens, subject.requests) == (80, 3)
    assignment.close()
    assert (subject.prefill_tokens, subject.requests) == (30, 2)


def test_a_report_from_before_an_assignment_arrived_does_not_hide_it() -> None:
    subject = worker("d0")
    subject.assign(prefill_tokens=50, pages=10)
    subject.report(State.READY, Load(pages_total=100, pages_free=100), 1.0)
    assert (subject.prefill_tokens, subject.requests, subject.pages_used) == (50, 1, 10)


def test_room_is_counted_in_whole_pages() -> None:
    subject = worker("d0", pages=(10, 2))
    assert subject.has_room(32)
    assert not subject.has_room(33)
    assert description("w", Role.DECODE).geometry.pages_for(33) == 3
