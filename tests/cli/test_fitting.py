"""Memory: whether workers fit, and what would."""

import re
from dataclasses import replace

import pytest

from cli.preflight.fitting import MemoryPlan, check_memory
from cli.preflight.memory import GIB, MIB, PROCESS_BYTES
from halfmoon.config import PageGeometry
from halfmoon.errors import ConfigError

GEOMETRY = PageGeometry(layers=16, kv_heads=8, page_size=64, head_dim=64, dtype="float32")
"""64 KiB a token."""
PLAN = MemoryPlan(parameters=GIB // 4, geometry=GEOMETRY, context=8192, kv=GIB, host_kv=None, workers=2)
"""Each worker: 1 GiB weights, 1 GiB KV, 1 GiB host pool, 600 MiB more."""


def refusal(plan: MemoryPlan, available: int) -> str:
    with pytest.raises(ConfigError) as error:
        check_memory(plan, available)
    assert "\n" not in error.value.message
    return error.value.message


def suggestions(plan: MemoryPlan, available: int) -> list[str]:
    return refusal(plan, available).split("this would fit: ")[1].split(", or ")


def applied(plan: MemoryPlan, flags: str) -> MemoryPlan:
    """The plan that the flags would make."""
    if match := re.search(r"--kv-memory (\d+)MiB", flags):
        plan = replace(plan, kv=int(match[1]) * MIB)
    if match := re.search(r"--host-kv-memory (\d+)MiB", flags):
        plan = replace(plan, host_kv=int(match[1]) * MIB)
    if match := re.search(r"--max-model-len (\d+)", flags):
        plan = replace(plan, context=int(match[1]))
    if "bfloat16" in flags:
        plan = replace(plan, geometry=replace(plan.geometry, dtype="bfloat16"))
    if "--role both" in flags:
        plan = replace(plan, workers=1)
    if "--prefill 1 --decode 1" in flags:
        plan = replace(plan, workers=2)
    return plan


def test_workers_that_fit_are_not_refused() -> None:
    check_memory(PLAN, 2 * (3 * GIB + PROCESS_BYTES))


def test_the_refusal_adds_up_what_is_needed() -> None:
    message = refusal(PLAN, 4 * GIB)
    assert "2 worker(s) need 7.2 GiB (1.0 GiB weights, 1.0 GiB KV cache, 1.0 GiB host KV pool, 0.6 GiB other" in message
    assert "4.0 GiB is free" in message


def test_half_the_memory_for_kv_is_suggested_where_it_holds_the_context() -> None:
    assert suggestions(PLAN, 5 * GIB + 2 * PROCESS_BYTES)[0] == "--kv-memory 768MiB"


def test_a_shorter_context_is_suggested_where_the_pools_would_not_hold_it() -> None:
    first = suggestions(PLAN, 3 * GIB + 2 * PROCESS_BYTES)[0]
    assert first == "--kv-memory 256MiB --max-model-len 4096"


def test_a_smaller_type_is_suggested_with_what_else_it_takes() -> None:
    assert "--dtype bfloat16" in suggestions(PLAN, 5 * GIB + 2 * PROCESS_BYTES)
    assert suggestions(PLAN, 2 * GIB + 2 * PROCESS_BYTES) == [
        "--dtype bfloat16 --kv-memory 256MiB",
        "--role both --kv-memory 812MiB",
        "--role both --dtype bfloat16",
    ]


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("host_kv", [None, GIB])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_suggested_fits(workers: int, host_kv: int | None, dtype: str) -> None:
    plan = replace(PLAN, workers=workers, host_kv=host_kv, geometry=replace(GEOMETRY, dtype=dtype))
    for available in range(3 * GIB // 2, plan.worker.total * workers, GIB // 3):
        for flags in suggestions(plan, available):
            changed = applied(plan, flags)
            check_memory(changed, available)
            assert changed.kv // changed.geometry.block_bytes >= changed.geometry.pages_for(changed.context)


def test_where_nothing_fits_the_size_of_the_model_is_told() -> None:
    message = refusal(PLAN, GIB)
    assert "no flags make it fit: weights in bfloat16 alone are 0.5 GiB, so use a smaller model" in message
