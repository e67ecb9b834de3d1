"""Pages travel in the contract's layout and come back unchanged."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from halfmoon.kernels import kv_pages
from halfmoon.kernels.kv_pages import Caches
from halfmoon.kernels.storage import stored_dtype, to_stored
from tests.kernels.dense import Floats, normal

PAGES, LAYERS, KV_HEADS, HEAD_DIM, PAGE_SIZE = 6, 3, 2, 8, 16
gather_pages, scatter_pages = jax.jit(kv_pages.gather_pages), jax.jit(kv_pages.scatter_pages)

BLOCK = (LAYERS, KV_HEADS, PAGE_SIZE, 2 * HEAD_DIM)


def random_caches(seed: int) -> Caches:
    random = np.random.RandomState(seed)
    return [
        (
            jnp.asarray(normal(random, PAGES, KV_HEADS, HEAD_DIM, PAGE_SIZE)),
            jnp.asarray(normal(random, PAGES, KV_HEADS, PAGE_SIZE, HEAD_DIM)),
        )
        for _ in range(LAYERS)
    ]


def block_of(caches: Caches, page: int) -> Floats:
    """[layers, kv_heads, page_size, 2 * head_dim], element by element: K left, V right."""
    block = np.empty(BLOCK, np.float32)
    for layer, (k_pages, v_pages) in enumerate(caches):
        k, v = np.asarray(k_pages), np.asarray(v_pages)
        for head in range(KV_HEADS):
            for slot in range(PAGE_SIZE):
                block[layer, head, slot, :HEAD_DIM] = k[page, head, :, slot]
                block[layer, head, slot, HEAD_DIM:] = v[page, head, slot, :]
    return block


def assert_others_unchanged(before: Caches, after: Caches, changed: set[int]) -> None:
    others = [page for page in range(PAGES) if page not in changed]
    for old, new in zip(before, after, strict=True):
        for old_part, new_part in zip(old, new, strict=True):
            np.testing.assert_array_equal(np.asarray(old_part)[others], np.asarray(new_part)[others])


def test_a_gathered_block_has_the_layout_of_the_wire() -> None:
    caches = random_caches(0)
    blocks = gather_pages(caches, np.array([4, 1], np.int32))
    assert blocks.shape == (2, *BLOCK)
    for block, page in zip(blocks, (4, 1), strict=True):
        np.testing.assert_array_equal(block, block_of(caches, page))


@pytest.mark.parametrize("pages", [[5], [2, 4], [3, 1, 5, 2]])
def test_blocks_that_were_scattered_are_gathered_again(pages: list[int]) -> None:
    before = random_caches(1)
    blocks = normal(np.random.RandomState(2), len(pages), *BLOCK)
    after = scatter_pages(before, jnp.array(pages), jnp.asarray(blocks))
    np.testing.assert_array_equal(gather_pages(after, jnp.array(pages)), blocks)
    assert_others_unchanged(before, after, set(pages))


def test_padding_is_scattered_to_the_scratch_page_alone() -> None:
    before = random_caches(3)
    blocks = normal(np.random.RandomState(4), 4, *BLOCK)
    after = scatter_pages(before, jnp.array([2, 0, 0, 0]), jnp.asarray(blocks))
    np.testing.assert_array_equal(block_of(after, 2), blocks[0])
    assert_others_unchanged(before, after, {0, 2})


def test_a_page_is_copied_in_all_layers() -> None:
    before = random_caches(5)
    after = kv_pages.copy_page(before, jnp.int32(4), jnp.int32(1))
    np.testing.assert_array_equal(block_of(after, 1), block_of(before, 4))
    assert_others_unchanged(before, after, {1})


def test_bfloat16_pages_keep_their_bits() -> None:
    stored = stored_dtype(jnp.bfloat16)
    caches = [(to_stored(k, stored), to_stored(v, stored)) for k, v in random_caches(6)]
    blocks = gather_pages(caches, jnp.array([3]))
    after = scatter_pages(caches, jnp.array([1]), blocks)
    assert blocks.dtype == jnp.bfloat16
    np.testing.assert_array_equal(gather_pages(after, jnp.array([1])), blocks)
