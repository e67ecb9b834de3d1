"""The comparison as text for people."""

from collections.abc import Iterator

from bench.table import columns
from bench.vs_vllm_cpu.plan import PREFILL
from bench.vs_vllm_cpu.results import Comparison, Medians
from bench.vs_vllm_cpu.serving import QUIET_SHARE

OURS = "halfmoon"


def render(comparison: Comparison) -> str:
    """Medians of every phase with ratios to Halfmoon's, then shares of the limits, then warnings."""
    machine = comparison.machine
    runs = f"medians of {comparison.runs} runs" if comparison.runs > 1 else "one run"
    head = f"{machine.processor}, {machine.cores} cores; {runs}; float32"
    return "\n".join([head, "", *columns(_rows(comparison)), "", *_limits(comparison), *_warnings(comparison)])


def _rows(comparison: Comparison) -> list[list[str]]:
    rows = [["phase", "server", "tokens/s", "halfmoon is", "TTFT ms", "halfmoon takes", "TPOT ms", "failed"]]
    ours = {entry.phase: entry for entry in comparison.medians if entry.contender == OURS}
    for phase in dict.fromkeys(entry.phase for entry in comparison.medians):
        rows += [_row(entry, ours.get(phase)) for entry in comparison.medians if entry.phase == phase]
    return rows


def _row(entry: Medians, ours: Medians | None) -> list[str]:
    throughput = _throughput(entry)
    speed = latency = ""
    if ours is not None and ours is not entry and throughput:
        speed = f"{_throughput(ours) / throughput:.2f}x"
        if ours.ttft and entry.ttft:
            latency = f"{ours.ttft / entry.ttft:.2f}x"
    label = entry.phase if entry is ours else ""
    return [
        label,
        entry.contender,
        f"{throughput:.1f}",
        speed,
        _milliseconds(entry.ttft),
        latency,
        _milliseconds(entry.tpot),
        str(entry.failed),
    ]


def _throughput(entry: Medians) -> float:
    """Tokens of answers; of prompts where that is what the phase is about."""
    return entry.input_tokens_per_second if entry.phase == PREFILL.name else entry.output_tokens_per_second


def _limits(comparison: Comparison) -> Iterator[str]:
    limits = comparison.limits
    yield (
        f"This machine: matrix product {limits.flops / 1e9:.0f} GFLOP/s, "
        f"memory stream {limits.bytes_per_second / 1e9:.1f} GB/s."
    )
    for share in comparison.shares:
        decode = f"{share.decode:.0%}" if share.decode is not None else "-"
        yield f"{share.contender} reaches {share.prefill:.0%} of the one in prefill, {decode} of the other at batch 1."


def _warnings(comparison: Comparison) -> Iterator[str]:
    noisy = [entry for entry in comparison.measured if entry.busy > QUIET_SHARE]
    for name, run, busy in dict.fromkeys((entry.contender, entry.run, entry.busy) for entry in noisy):
        yield f"warning: others used {busy:.0%} of the machine before {name}'s run {run}"
    for entry in comparison.measured:
        if entry.summary.short:
            yield f"warning: {entry.contender}, {entry.phase.name}: {entry.summary.short} answers are too short"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.0f}"
