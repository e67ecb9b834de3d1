"""Whether what is asked for fits into the memory there is, and if not, what would."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cli.preflight.memory import GIB, MIB, PROCESS_BYTES, WorkerMemory
from halfmoon.config import PageGeometry
from halfmoon.errors import ConfigError

_FEWEST_TOKENS = 256
"""A context shorter than this is not worth suggesting."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Workers of one kind: `parameters` of the model, memory of the pools in bytes, `context` in tokens.

    The geometry's dtype is that of weights and KV. `host_kv` None means as much as `kv`.
    """

    parameters: int
    geometry: PageGeometry
    context: int
    kv: int
    host_kv: int | None
    workers: int

    @property
    def worker(self) -> WorkerMemory:
        """What one worker takes."""
        weights = self.parameters * self.geometry.itemsize
        return WorkerMemory(weights=weights, kv=self.kv, host_kv=self.host_kv or self.kv)

    def fits(self, available: int) -> bool:
        """Whether all workers together need no more than `available` bytes."""
        return self.worker.total * self.workers <= available


def check_memory(plan: MemoryPlan, available: int) -> None:
    """Raises ConfigError that adds up what is needed, and names flags with which it would fit `available` bytes."""
    if plan.fits(available):
        return
    worker = plan.worker
    raise ConfigError(
        f"too little memory: {plan.workers} worker(s) need {_gib(worker.total * plan.workers)} "
        f"({_gib(worker.weights)} weights, {_gib(worker.kv)} KV cache, {_gib(worker.host_kv)} host KV pool, "
        f"{_gib(PROCESS_BYTES)} other, each) and {_gib(available)} is free; {_advice(plan, available)}"
    )


def _advice(plan: MemoryPlan, available: int) -> str:
    fitting = list(dict.fromkeys(_fitting_flags(plan, available)))
    if fitting:
        return f"this would fit: {', or '.join(fitting)}"
    smallest = replace(_in_bfloat16(plan), workers=1).worker
    return f"no flags make it fit: weights in bfloat16 alone are {_gib(smallest.weights)}, so use a smaller model"


def _fitting_flags(plan: MemoryPlan, available: int) -> Iterator[str]:
    """Flags with which it fits: with as many workers as asked for, then with the next smaller number that can."""
    found = False
    for fewer, named in _with_fewer_workers(plan):
        for changed, dtype in _with_smaller_types(fewer):
            flags = [*named, *dtype]
            if flags and changed.fits(available):
                yield " ".join(flags)
                found = True
            elif pools := _smaller_pools(changed, available):
                yield " ".join([*flags, *pools])
                found = True
        if found and named:
            return


def _with_fewer_workers(plan: MemoryPlan) -> Iterator[tuple[MemoryPlan, list[str]]]:
    yield plan, []
    if plan.workers > 2:
        yield replace(plan, workers=2), ["--prefill 1 --decode 1"]
    if plan.workers > 1:
        yield replace(plan, workers=1), ["--role both"]


def _with_smaller_types(plan: MemoryPlan) -> Iterator[tuple[MemoryPlan, list[str]]]:
    yield plan, []
    if plan.geometry.itemsize > 2:
        yield _in_bfloat16(plan), ["--dtype bfloat16"]


def _in_bfloat16(plan: MemoryPlan) -> MemoryPlan:
    return replace(plan, geometry=replace(plan.geometry, dtype="bfloat16"))


def _smaller_pools(plan: MemoryPlan, available: int) -> list[str]:
    """Flags for pools that use all that weights leave; none where that would be too little to serve with."""
    room = available // plan.workers - plan.worker.weights - PROCESS_BYTES
    kv = min(room // 2, plan.kv) // MIB * MIB
    tokens = max(0, kv) // plan.geometry.block_bytes * plan.geometry.page_size
    if tokens < min(_FEWEST_TOKENS, plan.context):
        return []
    flags = [f"--kv-memory {kv // MIB}MiB"]
    if plan.host_kv is not None:
        flags.append(f"--host-kv-memory {kv // MIB}MiB")
    if tokens < plan.context:
        flags.append(f"--max-model-len {tokens}")
    return flags


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
