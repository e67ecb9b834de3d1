"""No compiled step copies the cache: none makes a second array of a cache's size."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

from halfmoon.config import PageGeometry
from halfmoon.kernels.kv_pages import copy_page, scatter_pages
from halfmoon.kernels.kv_write import write_tokens
from halfmoon.runner.programs import Programs
from halfmoon.runner.runner import Runner
from halfmoon.runner.steps import empty_caches
from tests.runner.hlo import cache_sized_results, donated_arguments
from tests.runner.small import BUCKETS, CACHE_SHAPE, HEAD_DIM, KV_HEADS, LAYERS, PAGE_SIZE, PAGES

CACHE = jnp.zeros(CACHE_SHAPE)
TOKENS = jnp.zeros((KV_HEADS, HEAD_DIM, 5))
PLACES = np.arange(5, dtype=np.int32)


def test_the_programs_that_hold_the_caches_update_them_in_place(runner: Runner) -> None:
    """Every bucket of prefill and decode, moves of pages, and the copy of one page."""
    donating, reading = 0, 0
    for name, text in runner.texts().items():
        assert cache_sized_results(text, CACHE_SHAPE) == [], name
        donated = donated_arguments(text)
        assert donated in {0, 2 * LAYERS}, name
        donating += donated > 0
        reading += donated == 0
    assert donating == len(BUCKETS.prefill) + len(BUCKETS.decode) + len(BUCKETS.moved_pages) + 1
    assert reading == len(BUCKETS.prefill) + len(BUCKETS.moved_pages), "prompt log-probabilities, pages copied out"


def optimised(function: object, *arguments: object, donate: tuple[int, ...]) -> str:
    programs = Programs()
    programs.compile("one", function, *arguments, donate=donate)  # type: ignore[arg-type]
    return programs.texts()["one"]


def found(function: object, *arguments: object, donate: tuple[int, ...]) -> list[str]:
    return cache_sized_results(optimised(function, *arguments, donate=donate), CACHE_SHAPE)


@pytest.fixture
def caches() -> list[tuple[Array, Array]]:
    return empty_caches(PAGES + 1, PageGeometry(LAYERS, KV_HEADS, PAGE_SIZE, HEAD_DIM, "float32"))


def test_a_step_whose_caches_are_not_donated_is_found(caches: list[tuple[Array, Array]]) -> None:
    one = np.int32(1)
    assert found(copy_page, caches, one, one, donate=(0,)) == []
    copies = found(copy_page, caches, one, one, donate=())
    assert len(copies) == 2 * LAYERS
    assert all(each.startswith("copy ") for each in copies)


def test_a_loop_over_caches_that_are_not_donated_is_found(caches: list[tuple[Array, Array]]) -> None:
    blocks, pages = jnp.zeros((4, LAYERS, KV_HEADS, PAGE_SIZE, 2 * HEAD_DIM)), np.arange(4, dtype=np.int32)
    assert found(scatter_pages, caches, pages, blocks, donate=(0,)) == []
    assert found(scatter_pages, caches, pages, blocks, donate=())
    assert found(write_tokens, CACHE, CACHE, TOKENS, TOKENS, PLACES, PLACES, donate=())


def test_a_write_through_a_transposed_view_is_found() -> None:
    def write(cache: Array, page: Array, index: Array) -> Array:
        view = cache.swapaxes(2, 3).at[index].set(page)
        return view.swapaxes(2, 3)

    results = found(write, CACHE, jnp.ones(CACHE_SHAPE[1:]), np.int32(1), donate=(0,))
    assert any(each.startswith(("transpose ", "copy ")) for each in results)


def test_a_scatter_is_found() -> None:
    def write(cache: Array, keys: Array, pages: Array, slots: Array) -> Array:
        return cache.at[pages, :, :, slots].set(keys.transpose(2, 0, 1))

    assert found(write, CACHE, TOKENS, PLACES, PLACES, donate=(0,))


def test_a_step_that_computes_with_the_whole_cache_is_found() -> None:
    def fill(cache: Array, index: Array) -> Array:
        return jnp.where(jnp.arange(CACHE_SHAPE[0])[:, None, None, None] == index, 1.0, cache)

    def reshaped(cache: Array, index: Array) -> Array:
        rows = cache.transpose(3, 0, 1, 2).reshape(-1, HEAD_DIM)
        row: Array = lax.dynamic_index_in_dim(jnp.sort(rows, axis=0), index)
        return row

    assert found(fill, CACHE, np.int32(1), donate=(0,))
    assert found(reshaped, CACHE, np.int32(1), donate=())


def test_donated_arguments_are_counted() -> None:
    add = functools.partial(jax.tree.map, jnp.add)
    assert donated_arguments(optimised(add, (CACHE, CACHE), (CACHE, CACHE), donate=(0,))) == 2
    assert donated_arguments(optimised(add, (CACHE, CACHE), (CACHE, CACHE), donate=())) == 0
