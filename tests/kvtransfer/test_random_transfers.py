"""Random transfers under injected faults, over every transport.

Each ends COMPLETE with the right bytes, or FAILED or CANCELLED within its deadline, and nothing is left. The seed is
printed at the end of the run; HALFMOON_FAULT_SEED gives the same transfers, faults and troubles again.
"""

import os
import random
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from kvtransfer.spec import TRANSPORTS
from tests.kvtransfer.conftest import Report
from tests.kvtransfer.faults.clock import loop_clock
from tests.kvtransfer.faults.injector import Injector
from tests.kvtransfer.faults.leftovers import Leftovers
from tests.kvtransfer.faults.misdeeds import Misdeed
from tests.kvtransfer.faults.owners import MortalOwner
from tests.kvtransfer.faults.reader import faulty_reader
from tests.kvtransfer.faults.storm import SLACK_SECONDS, Storm
from tests.kvtransfer.kinds import NAMES, kind_named
from tests.kvtransfer.planes import at_rest, plane_spec, pull, sealed

OWNERS = 2

WAYS = [(name,) for name in NAMES] + [TRANSPORTS]
"""Each transport alone, and those that planes use by themselves, where one steps in for another."""

over = pytest.mark.parametrize("transports", WAYS, ids="+".join)


def chosen_seed() -> int:
    """Another one in each run, unless it is given."""
    return int(os.environ.get("HALFMOON_FAULT_SEED") or random.SystemRandom().randrange(1 << 32))


@over
async def test_a_few_random_transfers_end_right(transports: tuple[str, ...], report: Report) -> None:
    await weather(transports, 200, report)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@over
async def test_ten_thousand_random_transfers_end_right(transports: tuple[str, ...], report: Report) -> None:
    await weather(transports, 10_000, report)


async def weather(transports: tuple[str, ...], count: int, report: Report) -> None:
    """A storm of `count` transfers; compares what this process and machine hold before and after."""
    seed = chosen_seed()
    await storm(transports, seed, 0)
    counted = counts_sockets(transports)
    before = Leftovers.now(with_descriptors=counted)
    summary = await storm(transports, seed, count)
    report(f"{count} random transfers over {'+'.join(transports)}, HALFMOON_FAULT_SEED={seed}: {summary}")
    assert Leftovers.now(with_descriptors=counted) == before


def counts_sockets(transports: tuple[str, ...]) -> bool:
    """Whether all of these close what they open."""
    return not any(kind_named(name).keeps_sockets for name in transports)


async def storm(transports: tuple[str, ...], seed: int, count: int) -> str:
    """What came of `count` transfers from two owners; with none, a single good one."""
    injector = Injector()
    spec = plane_spec(
        "reader", 100, transports=transports, pull_window=8, host_blocks=64, read_seconds=0.5, control_seconds=0.5
    )
    async with AsyncExitStack() as stack:
        owners = []
        for number in range(OWNERS):
            owners.append(await MortalOwner.start(f"owner-{number}", 1000 * (number + 1), transports))
            stack.push_async_callback(owners[-1].close)
        reader = await stack.enter_async_context(faulty_reader(spec, injector))
        clock = await stack.enter_async_context(loop_clock())
        made = Storm(seed, owners, reader, injector, clock)
        ended = await made.run(count)
        check(made, ended, count)
        planes = [await owner.plane() for owner in owners]
        await at_rest(reader, *planes, seconds=10.0)
        for plane in planes:
            await pull(reader, await sealed(plane, 20))
        await at_rest(reader, *planes)
        return f"{dict(sorted(ended.items()))}, {told(made)}"


def check(made: Storm, ended: Counter[str], count: int) -> None:
    """Every transfer has ended in time, and the faults were neither too many nor too few to mean anything."""
    late = [ending for ending in made.endings if ending.state == "OVERDUE" or ending.late > SLACK_SECONDS]
    assert not late, f"seed {made.seed}: {len(late)} late, {late[:5]}"
    assert sum(ended.values()) == count
    if count:
        assert ended["COMPLETE"] > count * 0.2, f"seed {made.seed}: {ended}"
        assert ended["FAILED"] > count * 0.05, f"seed {made.seed}: {ended}"
        assert len(made.injector.committed) >= len(Misdeed) - 2, f"seed {made.seed}: {made.injector.committed}"


def told(made: Storm) -> str:
    """The faults in a line."""
    misdeeds = {misdeed.value: number for misdeed, number in made.injector.committed.most_common()}
    deaths, stops = sum(owner.deaths for owner in made.owners), sum(owner.stops for owner in made.owners)
    latest = max((ending.late for ending in made.endings), default=0.0)
    return (
        f"latest {latest:.2f} s after its deadline; batches {misdeeds}, "
        f"{deaths} owners killed and replaced, {stops} stopped for a while"
    )
