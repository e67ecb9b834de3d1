"""Kernels that LLVM compiled run inside XLA's programs: whole, on all threads, from several programs at once."""

from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from llvmlite import ir

from halfmoon.native.emit import F32, I64, PTR, VOID, Call, function, vector
from halfmoon.native.machine import compiler, interface_known, vectors

CHUNK = 4
"""Elements that one chunk of the kernel below computes."""


def exponentials() -> ir.Module:
    """exp of each element, vectors first."""
    module = ir.Module("exponentials")
    emitter, (frame,) = function(module, "chunks", ir.FunctionType(I64, [PTR]))
    emitter.builder.ret(emitter.builder.sdiv(Call(emitter, frame).argument(0).dim(0), emitter.number(CHUNK)))

    emitter, (frame, chunk) = function(module, "kernel", ir.FunctionType(VOID, [PTR, I64]))
    call = Call(emitter, frame)
    first = emitter.mul_add(chunk, CHUNK)
    source, target = (emitter.at(buffer.data, first) for buffer in (call.argument(0), call.result(0)))
    emitter.store(emitter.exp(emitter.load(source, vector(2))), target)
    with emitter.loop(emitter.number(2), emitter.number(CHUNK)) as place:
        emitter.store(emitter.exp(emitter.load(emitter.at(source, place), F32)), emitter.at(target, place))
    emitter.builder.ret_void()
    return module


@pytest.fixture(autouse=True, scope="module")
def registered() -> None:
    compiler().register("exponentials", exponentials())


def exp_program(size: int) -> jax.stages.Compiled:
    kind = jax.ShapeDtypeStruct((size,), jnp.float32)
    return jax.jit(jax.ffi.ffi_call("exponentials", kind)).lower(kind).compile()


def test_the_installed_xla_is_the_one_that_the_call_is_written_for() -> None:
    assert interface_known()
    assert vectors().lanes in {4, 8, 16}


def test_every_chunk_is_computed_once_whichever_thread_draws_it() -> None:
    for size in (CHUNK, 2 * CHUNK, 1000 * CHUNK):
        x = -np.random.RandomState(size).uniform(0, 86, size).astype(np.float32)
        found = np.asarray(exp_program(size)(x), np.float64)
        np.testing.assert_allclose(found, np.exp(x.astype(np.float64)), rtol=3e-7)


def test_exp_of_very_negative_numbers_is_next_to_nothing_and_never_wrong() -> None:
    x = np.array([0, -86.9, -87, -88, -1e4, -3e38, -np.inf, -1e-30], np.float32)
    found = np.asarray(exp_program(8)(x))
    assert found[0] == found[7] == 1
    assert ((found[1:7] > 0) & (found[1:7] < 2e-38)).all()


def test_programs_of_several_threads_share_the_pool_without_losing_work() -> None:
    program = exp_program(64 * CHUNK)

    def rounds(seed: int) -> bool:
        x = -np.random.RandomState(seed).uniform(0, 20, 64 * CHUNK).astype(np.float32)
        expected = np.asarray(program(x))
        return all(np.array_equal(np.asarray(program(x)), expected) for _ in range(300))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(rounds, range(8)))
