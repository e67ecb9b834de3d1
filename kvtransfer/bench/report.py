"""A run as text for people and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from kvtransfer.bench.cases import Case
from kvtransfer.bench.contestants import MEMCPY, MOONCAKE, MOONCAKE_PROTO
from kvtransfer.bench.control import ControlTimes
from kvtransfer.bench.figures import Figures, ratio
from kvtransfer.bench.targets import Results, Verdict

_BASES = {"x memcpy": MEMCPY, "x mooncake": MOONCAKE, "x PROTO=1": MOONCAKE_PROTO}
_HEAD = ("", "GB/s", "p50 ms", "p99 ms", "CPU s/GB", *_BASES)


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that a run found out; `notes` are what a reader of the figures must know."""

    results: Results
    control: ControlTimes | None
    verdicts: Sequence[Verdict]
    notes: Sequence[str]


def render(report: Report) -> str:
    """A table for each case, the control calls, the targets, the notes."""
    lines: list[str] = []
    for case, by_name in report.results.items():
        lines += [f"{case.label} ({case.bytes / 1e6:.1f} MB a batch)", *_table(by_name), ""]
    if report.control is not None:
        times = report.control
        lines += [
            f"control RPC while an engine works: p50 {times.p50 * 1e3:.2f} ms, p99 {times.p99 * 1e3:.2f} ms "
            f"of {times.calls}",
            "",
        ]
    if report.verdicts:
        lines += ["targets", *(_verdict(verdict) for verdict in report.verdicts)]
    return "\n".join([*lines, *(f"note: {note}" for note in report.notes)])


def to_json(report: Report) -> dict[str, object]:
    """The same as plain values; times in seconds, rates in GB/s of each round."""
    return {
        "cases": [_case_to_json(case, by_name) for case, by_name in report.results.items()],
        "control": asdict(report.control) if report.control else None,
        "targets": [asdict(verdict) for verdict in report.verdicts],
        "notes": list(report.notes),
    }


def _case_to_json(case: Case, by_name: Mapping[str, Figures]) -> dict[str, object]:
    figures = {name: {**asdict(found), "rate": found.rate} for name, found in by_name.items()}
    return {"block_bytes": case.block_bytes, "blocks": case.blocks, "contestants": figures}


def _table(by_name: Mapping[str, Figures]) -> list[str]:
    rows = [_HEAD, *(_row(name, by_name) for name in by_name)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]


def _row(name: str, by_name: Mapping[str, Figures]) -> tuple[str, ...]:
    found = by_name[name]
    bases = (by_name.get(base) for base in _BASES.values())
    ratios = ("-" if base is None else f"{ratio(found, base):.2f}" for base in bases)
    times = (f"{found.p50 * 1e3:.3f}", f"{found.p99 * 1e3:.3f}", f"{found.cpu_per_gb:.2f}")
    return (f"  {name}", f"{found.rate:.2f}", *times, *ratios)


def _verdict(verdict: Verdict) -> str:
    word = "met   " if verdict.met else "MISSED"
    return f"  {word}  {verdict.text}: {verdict.figure:.3g} (bound {verdict.bound:.3g})"
