"""The curve of latency over throughput."""

from pathlib import Path
from typing import TYPE_CHECKING

from bench.report import Report
from halfmoon.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MILLISECONDS = 1e3


def check_plotting() -> None:
    """Raises ConfigError where matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ConfigError("--plot needs matplotlib: pip install 'halfmoon[plot]'") from None


def write_plot(report: Report, path: Path) -> None:
    """A PNG: time to first token and time per output token over output tokens/s, a point a level.

    Raises ConfigError where matplotlib is missing or the file cannot be written.
    """
    check_plotting()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _curve(left, report, "ttft", "time to first token, ms")
    _curve(right, report, "tpot", "time per output token, ms")
    figure.suptitle(f"{report.target.model.id}: {report.workload}")
    try:
        figure.savefig(path, format="png", dpi=120)
    except OSError as error:
        raise ConfigError(f"cannot write the plot to {path}: {error.strerror}") from None


def _curve(axes: "Axes", report: Report, field: str, label: str) -> None:
    levels = [level for level in report.levels if getattr(level, field) is not None]
    throughput = [level.output_tokens_per_second for level in levels]
    for name in ("p50", "p99"):
        latency = [getattr(getattr(level, field), name) * _MILLISECONDS for level in levels]
        axes.plot(throughput, latency, marker="o", label=name)
    for level in levels:
        point = (level.output_tokens_per_second, getattr(level, field).p50 * _MILLISECONDS)
        axes.annotate(level.level.label, point, textcoords="offset points", xytext=(4, -10), fontsize=7)
    axes.set(xlabel="output tokens/s", ylabel=label, ylim=(0, None))
    axes.grid(alpha=0.3)
    if levels:
        axes.legend()
