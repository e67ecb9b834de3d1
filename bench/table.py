"""A report as text for people."""

from collections.abc import Iterator, Sequence

from bench.arithmetic import Distribution
from bench.report import Report, Target
from bench.summary import Summary

_MILLISECONDS = 1e3
_LATENCIES = (("TTFT", "ttft"), ("TPOT", "tpot"), ("ITL", "itl"), ("end to end", "end_to_end"))


def render(report: Report) -> str:
    """Header, throughput and latencies of every level, and what went wrong."""
    return "\n".join([*_header(report), "", *_throughput(report), "", *_latencies(report), *_remarks(report)])


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines: the first column flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_padded(row, widths)) for row in rows]


def _padded(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    yield row[0].ljust(widths[0])
    yield from (text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))


def _header(report: Report) -> list[str]:
    machine = report.machine
    packages = ", ".join(f"{name} {version}" for name, version in machine.packages.items())
    return [
        f"server    {report.target.url} {_server(report.target)}".rstrip(),
        f"model     {_model(report.target)}",
        f"workload  {report.workload} (seed {report.seed})",
        f"client    {machine.processor}, {machine.cores} cores, {machine.memory_gib:g} GiB; {machine.system}",
        f"versions  Python {machine.python}, {packages}",
    ]


def _server(target: Target) -> str:
    return " ".join(filter(None, (target.model.owned_by, target.version)))


def _model(target: Target) -> str:
    told = {
        "revision": target.model.revision,
        "fingerprint": target.model.fingerprint,
        "dtype": target.dtype,
    }
    return ", ".join([target.model.id, *(f"{name} {value}" for name, value in told.items() if value)])


def _throughput(report: Report) -> list[str]:
    head = ["level", "requests", "failed", "requests/s", "output tokens/s", "total tokens/s"]
    rows = [head + (["goodput/s"] if report.objectives.exist else []) + ["client CPU"]]
    for level in report.levels:
        row = [level.level.label, str(level.requests), str(level.failed), f"{level.requests_per_second:.2f}"]
        row += [f"{level.output_tokens_per_second:.1f}", f"{level.total_tokens_per_second:.1f}"]
        if level.goodput is not None:
            row.append(f"{level.goodput:.2f}")
        rows.append([*row, f"{level.client_cpu:.1%}"])
    return columns(rows)


def _latencies(report: Report) -> list[str]:
    rows = [["milliseconds", "", "mean", "p50", "p90", "p99"]]
    for level in report.levels:
        for name, field in _LATENCIES:
            distribution: Distribution | None = getattr(level, field)
            label = level.level.label if name == "TTFT" else ""
            rows.append([label, name, *_numbers(distribution)])
    return columns(rows)


def _numbers(distribution: Distribution | None) -> list[str]:
    if distribution is None:
        return ["-"] * 4
    values = (distribution.mean, distribution.p50, distribution.p90, distribution.p99)
    return [f"{value * _MILLISECONDS:.1f}" for value in values]


def _remarks(report: Report) -> Iterator[str]:
    lines = [f"note: {note}" for note in report.notes]
    for level in report.levels:
        lines += _level_remarks(level)
    if lines:
        yield ""
    yield from lines


def _level_remarks(level: Summary) -> Iterator[str]:
    label = level.level.label
    for message, count in level.errors.items():
        yield f"{label}: {count} failed: {message}"
    if level.short:
        yield f"{label}: {level.short} answers are shorter than asked for"
    if level.level.concurrency is None and level.send_lag > 0.05:
        yield f"{label}: the client sent up to {level.send_lag * _MILLISECONDS:.0f} ms late"
