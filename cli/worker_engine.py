"""From a model on disk to an engine that is compiled and ready to start."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cli.preflight.pools import PoolSizes
from cli.worker_devices import warm_placement
from halfmoon.cache.hashing import cache_salt
from halfmoon.config import PageGeometry
from halfmoon.cores import CoreShare
from halfmoon.engine.core import EngineCore
from halfmoon.engine.engine import Engine, Post
from halfmoon.engine.pace import Pace
from halfmoon.kernels.choice import choose_kernels, describe_kernels
from halfmoon.models.registry import load_model, model_config
from halfmoon.runner.buckets import BucketTable
from halfmoon.runner.programs import CompileCounter
from halfmoon.runner.runner import Runner, RunnerConfig
from halfmoon.telemetry import Metrics
from halfmoon.text import load_text_model
from halfmoon.weights import open_checkpoint
from kvtransfer.device import Placement

if TYPE_CHECKING:
    from cli.worker import WorkerConfig

_log = logging.getLogger(__name__)

_DEEP_CONTEXT = 1024
"""Positions before a step whose time tells how steps slow down as prompts get longer."""

_PROGRESS_EVERY = 5.0
"""Seconds between lines that say how far loading or compiling is."""


@dataclass(frozen=True, slots=True)
class LoadedEngine:
    """An engine and what the rest of the worker needs to know of it."""

    engine: Engine
    geometry: PageGeometry
    fingerprint: str
    salt: bytes
    vocab: int
    max_model_len: int
    host_blocks: int
    placement: Placement | None
    """For transfers from device to device, where they are wanted."""


def load_engine(config: "WorkerConfig", post: Post, metrics: Metrics) -> LoadedEngine:
    """Loads the weights and compiles every step; says how far it is. Raises ModelError or ConfigError."""
    choose_kernels(config.kernels)
    checkpoint = open_checkpoint(config.model)
    shape = model_config(checkpoint.config)
    geometry = shape.geometry(config.page_size, config.dtype)
    sizes = PoolSizes.of(
        geometry,
        config.max_model_len or shape.max_model_len,
        kv_memory=config.kv_memory,
        host_kv_memory=config.host_kv_memory,
    )
    counter = CompileCounter()
    name = config.served_model_name or config.model.name
    _log.info("loading", extra={"model": name, "dtype": config.dtype, "kernels": describe_kernels()})
    model = load_model(checkpoint, dtype=config.dtype, progress=_Pace("loaded weights", _megabytes))
    buckets = BucketTable.default(page_size=config.page_size)
    runner_config = RunnerConfig(geometry, sizes.pages, sizes.max_model_len, buckets, decodes=config.role != "prefill")
    runner = Runner(model, runner_config)
    runner.compile_all(_Pace("compiled steps"))
    placement = warm_placement(config.transports, geometry, buckets.moved_pages)
    metrics.gauge("halfmoon_worker_compilations_after_ready", "XLA compilations since READY", counter.since_now())
    salt = cache_salt(checkpoint.fingerprint, config.dtype, config.page_size)
    end_ids = load_text_model(config.model).end_token_ids
    core = EngineCore(runner, end_ids=end_ids, salt=salt, pace=_measured_pace(runner))
    _log.info("compiled", extra={"pages": sizes.pages, "tokens": sizes.pages * config.page_size})
    return LoadedEngine(
        engine=Engine(core, post, _cores(config)),
        geometry=geometry,
        fingerprint=checkpoint.fingerprint,
        salt=salt,
        vocab=shape.vocab_size,
        max_model_len=sizes.max_model_len,
        host_blocks=sizes.host_blocks,
        placement=placement,
    )


def _cores(config: "WorkerConfig") -> CoreShare | None:
    if config.core_share is None:
        return None
    index, workers, file = config.core_share
    return CoreShare(file, index, workers)


def _measured_pace(runner: Runner) -> Pace:
    buckets, pace = runner.config.buckets.prefill, Pace()
    context = min(_DEEP_CONTEXT, runner.config.max_model_len) // buckets[-1].run * buckets[-1].run
    if context:
        base = {bucket: runner.time_prefill(bucket) for bucket in buckets}
        pace.calibrate(base, deep=runner.time_prefill(buckets[-1], context), context=context)
        speed = buckets[-1].tokens / base[buckets[-1]]
        _log.info("measured", extra={"prefill_tokens_per_second": round(speed)})
    return pace


class _Pace:
    """Progress as log lines, not too many."""

    def __init__(self, what: str, shown: Callable[[int], str] = str) -> None:
        self._what = what
        self._shown = shown
        self._said = time.monotonic()

    def __call__(self, done: int, total: int, name: str = "") -> None:
        if time.monotonic() - self._said > _PROGRESS_EVERY:
            self._said = time.monotonic()
            percent = 100 * done // max(1, total)
            message = f"{self._what}: {self._shown(done)} of {self._shown(total)} ({percent} %)"
            _log.info(message, extra={"next": name or None})


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB"
