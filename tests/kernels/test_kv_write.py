"""Writes put each token in its page and slot, and leave everything else alone."""

import jax.numpy as jnp
import numpy as np
import pytest

from halfmoon.kernels.kv_write import write_runs, write_tokens
from halfmoon.kernels.storage import from_stored, stored_dtype, to_stored
from tests.kernels.dense import Floats, Ints, normal

pytestmark = pytest.mark.usefixtures("kernels")

PAGES, KV_HEADS, HEAD_DIM, PAGE_SIZE = 7, 2, 16, 16


def caches(random: np.random.RandomState) -> tuple[Floats, Floats]:
    return normal(random, PAGES, KV_HEADS, HEAD_DIM, PAGE_SIZE), normal(random, PAGES, KV_HEADS, PAGE_SIZE, HEAD_DIM)


def written(before: tuple[Floats, Floats], k: Floats, v: Floats, pages: Ints, slots: Ints) -> tuple[Floats, Floats]:
    """What token by token assignment gives; k, v [kv, head_dim, tokens]."""
    k_pages, v_pages = (each.copy() for each in before)
    for token, (page, slot) in enumerate(zip(pages, slots, strict=True)):
        k_pages[page, :, :, slot] = k[:, :, token]
        v_pages[page, :, slot, :] = v[:, :, token]
    return k_pages, v_pages


@pytest.mark.parametrize("rows", [1, 2, 5, 32])
def test_tokens_go_to_their_slots_and_nowhere_else(rows: int) -> None:
    random = np.random.RandomState(rows)
    before = caches(random)
    k, v = (normal(random, KV_HEADS, HEAD_DIM, rows) for _ in range(2))
    places = random.permutation(PAGES * PAGE_SIZE)[:rows].astype(np.int32)
    pages, slots = places // PAGE_SIZE, places % PAGE_SIZE
    after = write_tokens(*map(jnp.asarray, (*before, k, v, pages, slots)))
    for got, expected in zip(after, written(before, k, v, pages, slots), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("length", [8, 16])
def test_runs_go_to_their_slots_and_nowhere_else(length: int) -> None:
    random = np.random.RandomState(length)
    before = caches(random)
    pages = np.array([3, 1, 6, 5], np.int32)
    slots = (np.arange(4) * length % PAGE_SIZE).astype(np.int32)
    k, v = (normal(random, KV_HEADS, HEAD_DIM, 4 * length) for _ in range(2))
    after = write_runs(*map(jnp.asarray, (*before, k, v, pages, slots)))
    each_slot = (slots[:, None] + np.arange(length)).reshape(-1).astype(np.int32)
    expected = written(before, k, v, np.repeat(pages, length), each_slot)
    for got, wanted in zip(after, expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_padding_is_written_to_the_scratch_page_alone() -> None:
    random = np.random.RandomState(9)
    before = caches(random)
    k, v = (normal(random, KV_HEADS, HEAD_DIM, 4) for _ in range(2))
    nowhere = np.zeros(4, np.int32)
    for got, old in zip(write_tokens(*map(jnp.asarray, (*before, k, v, nowhere, nowhere))), before, strict=True):
        np.testing.assert_array_equal(got[1:], old[1:])


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_values_are_rounded_to_the_type_of_the_cache(dtype: jnp.dtype) -> None:
    random, stored = np.random.RandomState(10), stored_dtype(dtype)
    k_pages, v_pages = (to_stored(jnp.asarray(each), stored) for each in caches(random))
    k, v = (jnp.asarray(normal(random, KV_HEADS, HEAD_DIM, 1)) for _ in range(2))
    place = jnp.ones(1, jnp.int32)
    after_k, after_v = write_tokens(k_pages, v_pages, k, v, place, place)
    assert after_k.dtype == after_v.dtype == stored
    np.testing.assert_array_equal(from_stored(after_k[1, :, :, 1]), k[..., 0].astype(dtype))
    np.testing.assert_array_equal(from_stored(after_v[1, :, 1]), v[..., 0].astype(dtype))
