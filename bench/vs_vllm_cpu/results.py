"""What the runs found: medians, ratios, and the share of the machine's limits."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Self

from bench.machine import Machine
from bench.summary import Summary
from bench.vs_vllm_cpu.limits import Limits
from bench.vs_vllm_cpu.model import ModelCost
from bench.vs_vllm_cpu.plan import PREFILL, SINGLE, Phase


@dataclass(frozen=True, slots=True)
class Measured:
    """One phase on one server in one run; `busy` is the share of the machine that others used before it started."""

    contender: str
    version: str | None
    phase: Phase
    run: int
    busy: float
    summary: Summary


@dataclass(frozen=True, slots=True)
class Medians:
    """Of a phase's runs on one server: tokens a second, times in seconds, requests that failed in all runs."""

    contender: str
    phase: str
    input_tokens_per_second: float
    output_tokens_per_second: float
    ttft: float | None
    tpot: float | None
    failed: int

    @classmethod
    def of(cls, measured: Sequence[Measured]) -> Self:
        """Medians over runs of each run's throughput and of its median latencies."""
        summaries = [entry.summary for entry in measured]
        return cls(
            contender=measured[0].contender,
            phase=measured[0].phase.name,
            input_tokens_per_second=median(summary.input_tokens / summary.duration for summary in summaries),
            output_tokens_per_second=median(summary.output_tokens_per_second for summary in summaries),
            ttft=_median([summary.ttft.p50 for summary in summaries if summary.ttft]),
            tpot=_median([summary.tpot.p50 for summary in summaries if summary.tpot]),
            failed=sum(summary.failed for summary in summaries),
        )


@dataclass(frozen=True, slots=True)
class Shares:
    """How near a server comes to the machine's limits, as fractions.

    `prefill` is of the matrix product, `decode`, at batch 1, of the memory stream.
    """

    contender: str
    prefill: float
    decode: float | None

    @classmethod
    def of(cls, prefill: Medians, single: Medians, cost: ModelCost, limits: Limits) -> Self:
        """From prefill's tokens/s and from the time per output token at concurrency 1."""
        flops_per_token = cost.prefill_flops(PREFILL.input_len) / PREFILL.input_len
        return cls(
            contender=single.contender,
            prefill=prefill.input_tokens_per_second * flops_per_token / limits.flops,
            decode=cost.step_bytes / single.tpot / limits.bytes_per_second if single.tpot else None,
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything: `measured` holds all runs, the rest follows from them."""

    started: str
    machine: Machine
    runs: int
    limits: Limits
    medians: tuple[Medians, ...]
    shares: tuple[Shares, ...]
    measured: tuple[Measured, ...]

    @classmethod
    def of(
        cls, measured: Sequence[Measured], limits: Sequence[Limits], cost: ModelCost, *, started: str, machine: Machine
    ) -> Self:
        """Sums up all runs."""
        groups: dict[tuple[str, str], list[Measured]] = {}
        for entry in measured:
            groups.setdefault((entry.contender, entry.phase.name), []).append(entry)
        medians = {key: Medians.of(entries) for key, entries in groups.items()}
        best = Limits(
            flops=median(limit.flops for limit in limits),
            bytes_per_second=median(limit.bytes_per_second for limit in limits),
        )
        names = dict.fromkeys(entry.contender for entry in measured)
        shares = (
            Shares.of(medians[name, PREFILL.name], medians[name, SINGLE.name], cost, best)
            for name in names
            if (name, PREFILL.name) in medians and (name, SINGLE.name) in medians
        )
        runs = len({entry.run for entry in measured})
        return cls(started, machine, runs, best, tuple(medians.values()), tuple(shares), tuple(measured))


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None
