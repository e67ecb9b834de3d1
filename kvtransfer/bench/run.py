"""A whole run: processes up, cases one after another, processes down."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from kvtransfer.bench.cases import Case
from kvtransfer.bench.contestants import present
from kvtransfer.bench.control import measure_control
from kvtransfer.bench.pair import Pair
from kvtransfer.bench.report import Report
from kvtransfer.bench.rounds import Pools, measure
from kvtransfer.bench.targets import verdicts

Say = Callable[[str], None]


def run(cases: Sequence[Case], *, rounds: int, control_calls: int, only: Sequence[str], say: Say) -> Report:
    """Measures every case, and control calls unless there are none to make; `say` hears of the progress.

    `only` keeps the contestants of these names; empty keeps all. Raises HalfmoonError when anything fails.
    """
    found, notes = present()
    names = [name for name in found if not only or name in only]
    for note in notes:
        say(note)
    load = os.getloadavg()[0]
    with ExitStack() as stack:
        pools = Pools.for_cases(cases)
        stack.callback(pools.close)
        say(f"starting {2 * len(names)} processes")
        pairs = []
        for name in names:
            pairs.append(Pair(name, pools.source, pools.target))
            stack.callback(pairs[-1].close)
        results = {}
        for number, case in enumerate(cases, start=1):
            title = f"case {number} of {len(cases)}: {case.label}"
            results[case] = measure(case, pairs, pools, rounds, _rounds_teller(say, title, rounds))
    control = None
    if control_calls:
        say(f"{control_calls} control calls while an engine works")
        control = measure_control(control_calls)
    notes.append(f"load average {load:.1f} before, {os.getloadavg()[0]:.1f} after (this run included)")
    return Report(results, control, verdicts(results, control.p99 if control else None), notes)


def _rounds_teller(say: Say, title: str, rounds: int) -> Callable[[int], None]:
    return lambda number: say(f"{title}, round {number + 1} of {rounds}")
