"""A whole run against one server: facts, warm-up, every level, the report."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from bench.dialect import Dialect
from bench.levels import Level
from bench.load import Load
from bench.machine import describe_machine
from bench.progress import Progress
from bench.report import Report, Target
from bench.server import connect, find_dialect
from bench.summary import Objectives, Summary
from bench.workloads import Request, Workload
from bench.workloads.vocabulary import SAFE_SIZE

MakeWorkload = Callable[[int], Workload]
"""Makes the workload for a vocabulary of so many token ids."""

_WARM_UP_SERIES = 1_000_000
_PROBE_TOKENS = 2
_GUESSED_VOCABULARY = f"the server tells no vocabulary: random token ids are below {SAFE_SIZE} (see --vocab-size)"


@dataclass(frozen=True, slots=True)
class BenchConfig:
    """What to measure; `model`, `vocab_size` and `dtype` None stand for what the server tells.

    `timeout` bounds a request, in seconds; `warm_up` requests precede each level and are not counted.
    """

    url: str
    workload: MakeWorkload
    levels: tuple[Level, ...]
    model: str | None = None
    api_key: str | None = None
    vocab_size: int | None = None
    dtype: str | None = None
    warm_up: int = 2
    timeout: float = 600.0
    temperature: float = 0.0
    seed: int = 0
    objectives: Objectives = field(default_factory=Objectives)


async def run_bench(config: BenchConfig, progress: Progress) -> Report:
    """Runs all levels one after another.

    Raises UnavailableError where the server does not answer a first prompt, ConfigError for a model it does not serve;
    later failures are counted in the report.
    """
    started = datetime.now().astimezone().isoformat(timespec="seconds")
    async with connect(config.url, api_key=config.api_key, request_seconds=config.timeout) as server:
        model = await server.model(config.model)
        target = Target(server.url, model, await server.version(), config.dtype or model.dtype)
        known = config.vocab_size or model.vocab_size
        workload = config.workload(known or SAFE_SIZE)
        (first,) = workload.requests(_WARM_UP_SERIES, 1)
        probe = Request(first.prompt, _PROBE_TOKENS, exact=True)
        dialect = await find_dialect(server, Dialect(model.id, temperature=config.temperature), probe)
        guessed = known is None and not isinstance(first.prompt, str)
        load = Load(server, dialect, config.objectives, config.seed)
        levels = [
            await _run_level(load, level, workload, series, config.warm_up, progress)
            for series, level in enumerate(config.levels)
        ]
    return Report(
        target=target,
        workload=workload.name,
        objectives=config.objectives,
        seed=config.seed,
        started=started,
        machine=describe_machine(),
        notes=(*((_GUESSED_VOCABULARY,) if guessed else ()), *dialect.notes),
        levels=tuple(levels),
    )


async def _run_level(
    load: Load, level: Level, workload: Workload, series: int, warm_up: int, progress: Progress
) -> Summary:
    if warm_up:
        warming = Level(warm_up, concurrency=min(warm_up, level.concurrency or warm_up))
        await load.run(warming, workload.requests(_WARM_UP_SERIES + 1 + series, warm_up), lambda _sample: None)
    requests = workload.requests(series, level.requests)
    progress.begin(level.label, len(requests))
    summary = await load.run(level, requests, lambda sample: progress.advance(sample.error is not None))
    progress.end(_one_line(summary))
    return summary


def _one_line(summary: Summary) -> str:
    text = f"{summary.output_tokens_per_second:.1f} output tokens/s, {summary.requests_per_second:.2f} requests/s"
    if summary.ttft is not None:
        text += f", median TTFT {summary.ttft.p50 * 1e3:.0f} ms"
    return f"{text}, {summary.failed} failed" if summary.failed else text
