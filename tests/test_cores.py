"""Workers share the cores by need."""

import os

import pytest

from halfmoon.cores import CoreShare, share


@pytest.mark.parametrize(
    ("cores", "busy", "index", "mine"),
    [
        ([0, 1], [0], 0, {0, 1}),
        ([0, 1], [0, 1], 0, {0}),
        ([0, 1], [0, 1], 1, {1}),
        ([0, 1], [1, 3], 3, {1}),
        ([0, 1], [0, 1, 2], 2, {0}),
        ([0, 1, 2, 3, 4], [0, 1], 1, {2, 3, 4}),
        ([2, 3, 6, 7], [0, 1, 2], 1, {3}),
        ([0, 1], [1], 0, {0, 1}),
    ],
)
def test_those_that_work_share_the_cores(cores: list[int], busy: list[int], index: int, mine: set[int]) -> None:
    assert share(cores, busy, index) == mine


def test_every_core_is_used_when_cores_suffice() -> None:
    for workers in range(1, 9):
        parts = [share(range(8), range(workers), index) for index in range(workers)]
        assert frozenset().union(*parts) == frozenset(range(8))
        assert sum(len(part) for part in parts) == 8


def test_a_worker_moves_when_another_begins_and_back_when_it_rests() -> None:
    all_cores = os.sched_getaffinity(0)
    try:
        with CoreShare.file(2) as path, CoreShare(path, 0, 2) as first, CoreShare(path, 1, 2) as second:
            first.work()
            assert os.sched_getaffinity(0) == all_cores
            second.work()
            first.work()
            assert os.sched_getaffinity(0) == share(sorted(all_cores), [0, 1], 0)
            second.rest()
            first.work()
            assert os.sched_getaffinity(0) == all_cores
    finally:
        os.sched_setaffinity(0, all_cores)
