"""Where the policy sends requests."""

from collections import Counter

import pytest

from halfmoon.errors import UnavailableError
from router.config import PolicySettings
from router.policy import Demand, Plan, plan
from router.worker import Worker
from tests.router.builders import worker

SETTINGS = PolicySettings(split_threshold=32, running_cost=16, overload=4096)


def planned(demand: Demand, *workers: Worker) -> Plan:
    return plan(demand, workers, SETTINGS)


def ids(chosen: Plan) -> tuple[str | None, str, str]:
    return (chosen.prefill.worker_id if chosen.prefill else None, chosen.decode.worker_id, chosen.reason)


def test_a_long_prompt_is_split() -> None:
    assert ids(planned(Demand(1000), worker("p0"), worker("d0"))) == ("p0", "d0", "split")


@pytest.mark.parametrize(("tokens", "reason"), [(32, "few_uncached"), (33, "split")])
def test_few_tokens_are_not_worth_splitting(tokens: int, reason: str) -> None:
    assert planned(Demand(tokens), worker("p0"), worker("d0")).reason == reason


def test_a_prompt_that_decode_holds_already_is_not_split() -> None:
    demand = Demand(1000, cached={"d1": 992, "p0": 992})
    assert ids(planned(demand, worker("p0"), worker("d0"), worker("d1"))) == (None, "d1", "few_uncached")


def test_the_longest_cached_prefix_wins_among_equal_queues() -> None:
    demand = Demand(1000, cached={"p1": 640})
    assert ids(planned(demand, worker("p0"), worker("p1"), worker("d0"))) == ("p1", "d0", "split")


def test_a_cached_prefix_counts_as_much_as_the_tokens_that_it_spares() -> None:
    demand = Demand(1000, cached={"p1": 640})
    assert ids(planned(demand, worker("p0"), worker("p1", queued=639), worker("d0")))[0] == "p1"
    assert ids(planned(demand, worker("p0"), worker("p1", queued=641), worker("d0")))[0] == "p0"


def test_the_least_loaded_decode_worker_is_taken() -> None:
    assert ids(planned(Demand(1000), worker("p0"), worker("d0", running=3), worker("d1", running=2)))[1] == "d1"


def test_of_equally_loaded_decode_workers_the_one_with_more_free_pages_is_taken() -> None:
    assert ids(planned(Demand(1000), worker("p0"), worker("d0", pages=(1000, 100)), worker("d1")))[1] == "d1"


def test_a_decode_worker_without_room_is_taken_only_when_none_has_room() -> None:
    full, busy = worker("d0", pages=(100, 10)), worker("d1", running=50)
    assert ids(planned(Demand(1000), worker("p0"), full, busy))[1] == "d1"
    assert ids(planned(Demand(1000), worker("p0"), full))[1] == "d0"


def test_decode_serves_alone_without_prefill_workers() -> None:
    assert ids(planned(Demand(1000), worker("d0", running=5), worker("d1"))) == (None, "d1", "no_prefill_worker")


def test_decode_helps_when_prefill_is_overloaded_and_it_has_room() -> None:
    overloaded = worker("p0", queued=5000)
    assert ids(planned(Demand(1000), overloaded, worker("d0"))) == (None, "d0", "prefill_overloaded")
    assert planned(Demand(1000), overloaded, worker("d0", pages=(100, 10))).reason == "split"
    assert planned(Demand(1000), overloaded, worker("d0", queued=6000)).reason == "split"


def test_whole_workers_serve_whole_requests() -> None:
    assert ids(planned(Demand(1000), worker("b0", queued=2000), worker("b1"))) == (None, "b1", "both")


def test_a_whole_worker_is_a_partner_for_either_tier() -> None:
    assert ids(planned(Demand(1000), worker("p0"), worker("b0", queued=3000))) == ("p0", "b0", "split")
    assert ids(planned(Demand(1000), worker("b0", running=50), worker("d0"))) == ("b0", "d0", "split")


@pytest.mark.parametrize("workers", [(), ("p0",)])
def test_without_a_worker_that_decodes_the_request_is_refused(workers: tuple[str, ...]) -> None:
    with pytest.raises(UnavailableError) as caught:
        planned(Demand(10), *map(worker, workers))
    assert caught.value.retry_after == 1.0


def test_workers_too_small_for_the_prompt_are_passed_over() -> None:
    assert ids(planned(Demand(100), worker("b0", context=100), worker("b1", queued=500)))[1] == "b1"


def test_a_burst_between_two_reports_is_spread() -> None:
    workers = [worker("p0"), worker("p1"), worker("d0"), worker("d1"), worker("d2")]
    counts: Counter[str] = Counter()
    for _ in range(60):
        chosen = planned(Demand(100), *workers)
        assert chosen.prefill is not None
        chosen.prefill.assign(prefill_tokens=100, pages=7)
        chosen.decode.assign(prefill_tokens=0, pages=7)
        counts.update([chosen.prefill.worker_id, chosen.decode.worker_id])
    assert counts == {"p0": 30, "p1": 30, "d0": 20, "d1": 20, "d2": 20}


@pytest.mark.parametrize(("tokens", "source"), [(416, "p1"), (415, None)])
def test_the_worker_that_computes_is_told_who_has_a_page_more_of_the_prompt(tokens: int, source: str | None) -> None:
    demand = Demand(1000, cached={"p0": 400, "p1": tokens})
    chosen = planned(demand, worker("p0"), worker("p1", queued=500), worker("d0"))
    assert ids(chosen) == ("p0", "d0", "split")
    assert (chosen.source.worker_id if chosen.source else None) == source
    assert chosen.source_tokens == (tokens if source else 0)


def test_a_worker_that_has_most_of_the_prompt_itself_needs_no_source() -> None:
    demand = Demand(1000, cached={"p0": 640, "p1": 640})
    assert planned(demand, worker("p0"), worker("p1"), worker("d0")).source is None


def test_pages_that_a_decode_worker_has_pulled_are_not_in_its_store() -> None:
    demand = Demand(1000, cached={"d0": 640})
    assert planned(demand, worker("p0"), worker("d0")).source is None


def test_a_worker_for_whole_requests_is_told_of_a_prefill_worker_that_has_the_prompt() -> None:
    demand = Demand(1000, cached={"p0": 640})
    chosen = planned(demand, worker("p0", queued=9999), worker("d0"))
    assert ids(chosen) == (None, "d0", "prefill_overloaded")
    assert chosen.source is not None
    assert chosen.source.worker_id == "p0"
