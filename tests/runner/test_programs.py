"""Programs are compiled ahead and never while serving; compilations are counted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from halfmoon.runner.programs import CompileCounter, Programs, shape_of


@pytest.fixture(scope="module")
def counter() -> CompileCounter:
    return CompileCounter()


def twice(x: jax.Array) -> jax.Array:
    return x + x


def test_a_program_runs_what_was_compiled() -> None:
    programs = Programs()
    programs.compile(("twice", 3), twice, shape_of((3,), jnp.float32))
    np.testing.assert_array_equal(programs["twice", 3](np.ones(3, np.float32)), [2, 2, 2])


def test_a_key_that_was_not_compiled_is_an_error() -> None:
    programs = Programs()
    programs.compile(("twice", 3), twice, shape_of((3,), jnp.float32))
    with pytest.raises(KeyError):
        programs["twice", 4]


def test_another_shape_is_refused_rather_than_compiled(counter: CompileCounter) -> None:
    programs = Programs()
    programs.compile("twice", twice, shape_of((3,), jnp.float32))
    compilations = counter.since_now()
    with pytest.raises(TypeError):
        programs["twice"](np.ones(4, np.float32))
    assert compilations() == 0


def test_each_compilation_counts_once(counter: CompileCounter) -> None:
    programs = Programs()
    compilations = counter.since_now()
    programs.compile("a", lambda x: x * 5, shape_of((3,), jnp.float32))
    programs.compile("b", lambda x: x * 6, shape_of((3,), jnp.float32))
    assert compilations() == 2
    later = counter.since_now()
    programs["a"](np.ones(3, np.float32))
    programs["b"](np.ones(3, np.float32))
    assert (compilations(), later()) == (2, 0)


def test_an_implicit_compilation_counts_too(counter: CompileCounter) -> None:
    compilations = counter.since_now()
    jax.jit(lambda x: x * 7)(np.ones(11, np.float32))
    assert compilations() >= 1


def test_texts_are_optimised_programs() -> None:
    programs = Programs()
    programs.compile("twice", twice, shape_of((3,), jnp.float32))
    assert programs.texts()["twice"].startswith("HloModule jit_twice")
