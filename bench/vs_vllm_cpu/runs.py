"""Alternating runs of all servers."""

import sys
from collections.abc import Iterator, Sequence
from datetime import datetime

import uvloop

from bench.levels import Level
from bench.machine import describe_machine
from bench.progress import ConsoleProgress
from bench.report import Report
from bench.session import BenchConfig, run_bench
from bench.vs_vllm_cpu.contenders import Contender
from bench.vs_vllm_cpu.folders import Folders
from bench.vs_vllm_cpu.limits import Limits, measure_limits
from bench.vs_vllm_cpu.model import ModelCost
from bench.vs_vllm_cpu.plan import Phase
from bench.vs_vllm_cpu.results import Comparison, Measured
from bench.vs_vllm_cpu.serving import serving, wait_for_quiet
from bench.vs_vllm_cpu.steps import say
from bench.workloads import RandomPrompts

_WARM_UP = 4
_REQUEST_SECONDS = 600.0


def compare(
    contenders: Sequence[Contender], phases: Sequence[Phase], cost: ModelCost, folders: Folders, *, runs: int
) -> Comparison:
    """Each run starts all servers in turn, one at a time, and asks the same of each.

    Raises UnavailableError for a server that does not start or does not answer.
    """
    started = datetime.now().astimezone().isoformat(timespec="seconds")
    measured: list[Measured] = []
    limits: list[Limits] = []
    for run in range(1, runs + 1):
        for contender in contenders:
            say(f"Run {run} of {runs}: {contender.name}")
            busy = wait_for_quiet()
            limits.append(measure_limits())
            with serving(contender, folders.logs) as url:
                measured += _measure(contender, url, phases, cost.vocab_size, run=run, busy=busy)
    return Comparison.of(measured, limits, cost, started=started, machine=describe_machine())


def _measure(
    contender: Contender, url: str, phases: Sequence[Phase], vocab_size: int, *, run: int, busy: float
) -> Iterator[Measured]:
    for number, phase in enumerate(phases):
        report = _bench(url, phase, vocab_size, seed=number, title=f"{contender.name}, {phase.name}")
        yield Measured(contender.name, report.target.version, phase, run, busy, report.levels[0])


def _bench(url: str, phase: Phase, vocab_size: int, *, seed: int, title: str) -> Report:
    """Every phase has prompts of its own, the same for all servers and runs."""
    config = BenchConfig(
        url=url,
        workload=lambda size: RandomPrompts(phase.input_len, phase.output_len, size, seed),
        levels=(Level(phase.requests, concurrency=phase.concurrency),),
        vocab_size=vocab_size,
        dtype="float32",
        warm_up=min(_WARM_UP, phase.concurrency),
        timeout=_REQUEST_SECONDS,
        seed=seed,
    )
    return uvloop.run(run_bench(config, ConsoleProgress(sys.stderr, title=title)))
