"""From the options of `halfmoon serve` to running programs."""

from dataclasses import replace

import uvloop

from cli.announcement import announcement
from cli.environment import has_tpu_library, prepare_jax
from cli.flags import EngineFlags
from cli.fleet import ServeOptions, plan_fleet
from cli.preflight.fitting import MemoryPlan, check_memory
from cli.preflight.memory import DEFAULT_KV_BYTES, available_memory
from cli.preflight.model import ModelFacts, check_context, inspect_model
from cli.preflight.pools import PoolSizes
from cli.supervise.console import Console
from cli.supervise.supervisor import Bounds, Supervisor
from halfmoon.cores import CoreShare


def check(options: ServeOptions) -> ModelFacts:
    """What can be known to fail is known before any program starts. Raises ModelError or ConfigError."""
    prepare_jax()
    facts = inspect_model(options.model)
    check_context(facts, options.engine.max_model_len)
    check_pools(options.engine, facts)
    check_memory(memory_plan(options.engine, facts, len(options.roles)), available_memory())
    return facts


def check_pools(engine: EngineFlags, facts: ModelFacts) -> None:
    """Raises ConfigError when a worker's pools would not hold a full context, or not its prefix store."""
    geometry = facts.shape.geometry(engine.page_size, engine.dtype)
    sizes = PoolSizes.of(
        geometry,
        engine.max_model_len or facts.shape.max_model_len,
        kv_memory=engine.kv_memory,
        host_kv_memory=engine.host_kv_memory,
    )
    engine.store.blocks(geometry, sizes.host_blocks)


def memory_plan(engine: EngineFlags, facts: ModelFacts, workers: int) -> MemoryPlan:
    """What so many workers take."""
    return MemoryPlan(
        parameters=facts.parameters,
        geometry=facts.shape.geometry(engine.page_size, engine.dtype),
        context=engine.max_model_len or facts.shape.max_model_len,
        kv=engine.kv_memory or DEFAULT_KV_BYTES,
        host_kv=engine.host_kv_memory,
        workers=workers,
    )


def serve(options: ServeOptions, facts: ModelFacts) -> int:
    """Runs the programs until told to stop; returns the exit status."""
    if has_tpu_library() or len(options.roles) == 1:  # on TPUs each worker has chips of its own
        return _supervise(options, facts)
    with CoreShare.file(len(options.roles)) as file:
        return _supervise(replace(options, core_file=file), facts)


def _supervise(options: ServeOptions, facts: ModelFacts) -> int:
    programs = plan_fleet(options)
    console = Console(tuple(program.name for program in programs), log_format=options.telemetry.log_format)
    console.say(f"starting {options.model_name} ({facts.architecture}): {', '.join(p.name for p in programs)}")

    async def supervise() -> int:
        supervisor = Supervisor(programs, console, Bounds(options.start_seconds, options.drain_seconds))
        return await supervisor.run(lambda: console.announce(announcement(options, chats=facts.chats)))

    return uvloop.run(supervise())
