"""A whole run with tiny sizes: real processes on both sides."""

import json
import os
import threading
from multiprocessing import resource_tracker

import pytest

from halfmoon.errors import TransferError
from kvtransfer.bench.cases import Case
from kvtransfer.bench.contestants import MEMCPY, MOONCAKE, MOONCAKE_PROTO
from kvtransfer.bench.pair import Pair
from kvtransfer.bench.report import render, to_json
from kvtransfer.bench.rounds import Pools, measure
from kvtransfer.bench.run import run
from kvtransfer.transports.mooncake_engine import why_missing

CASES = (Case(4096, 1), Case(5000, 70))
OURS = ("memcpy", "socket", "shm", "shm + hash", "tcp", "tcp + hash")


def test_every_contestant_is_measured_in_every_case() -> None:
    told: list[str] = []
    report = run(CASES, rounds=2, control_calls=3, only=(), say=told.append)
    mooncake = () if why_missing() else ("mooncake", "mooncake + hash", MOONCAKE, MOONCAKE_PROTO)
    assert any("LEFT OUT: Mooncake" in line for line in told) is bool(why_missing())
    for case in CASES:
        by_name = report.results[case]
        assert tuple(by_name) == (*OURS, *mooncake)
        assert all(len(found.rates) == 2 and 0 < found.p50 <= found.p99 for found in by_name.values())
        assert f"case {CASES.index(case) + 1} of 2: {case.label}, round 2 of 2" in told
    assert report.control is not None
    assert 0 < report.control.p50 <= report.control.p99
    text = render(report)
    assert all(name in text for name in (*OURS, "70 x 4.88 KiB", "control RPC"))
    assert json.loads(json.dumps(to_json(report)))["cases"][1]["blocks"] == 70


def test_wrong_bytes_are_not_measured() -> None:
    case = Case(4096, 4)
    pools, others = Pools.for_cases([case]), Pools.for_cases([case])
    pair = Pair("shm", pools.source, pools.target)
    mixed = Pools(pools.source, others.target)
    try:
        with pytest.raises(TransferError, match="shm brought wrong bytes for 4 x 4 KiB"):
            measure(case, [pair], mixed, 1, lambda _: None)
    finally:
        pair.close()
        pools.close()
        others.close()


def test_nothing_is_left_of_a_run() -> None:
    resource_tracker.ensure_running()  # the interpreter's own, one for all processes that it ever starts
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    run(CASES[:1], rounds=1, control_calls=0, only=[MEMCPY, "shm + hash"], say=lambda _: None)
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == descriptors
