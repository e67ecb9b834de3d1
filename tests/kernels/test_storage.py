"""Caches keep bfloat16 as bit patterns on CPU, and everything else as it is."""

import jax.numpy as jnp
import numpy as np
import pytest

from halfmoon.kernels.paged_decode import paged_decode
from halfmoon.kernels.storage import from_stored, stored_dtype, to_stored, value_dtype
from tests.kernels.dense import Heads, dense_attention, normal, paged


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_other_types_lie_as_they_are(dtype: str) -> None:
    assert stored_dtype(dtype) == value_dtype(dtype) == jnp.dtype(dtype)
    values = jnp.arange(4, dtype=dtype)
    np.testing.assert_array_equal(from_stored(to_stored(values, stored_dtype(dtype))), values)


def test_bfloat16_comes_back_with_all_its_bits() -> None:
    stored = stored_dtype("bfloat16")
    assert stored == jnp.uint16
    assert value_dtype(stored) == jnp.bfloat16
    values = jnp.asarray([0.0, -0.0, 1.5, -np.inf, 3e38, 1e-40], jnp.bfloat16)
    back = from_stored(to_stored(values, stored))
    assert back.dtype == jnp.bfloat16
    np.testing.assert_array_equal(np.asarray(back).view(np.uint16), np.asarray(values).view(np.uint16))


def test_attention_reads_values_that_lie_as_bits() -> None:
    """Against dense attention over the rounded keys and values; 1 % of the largest is the precision of bfloat16."""
    random = np.random.RandomState(0)
    cache = paged(random, Heads(4, 2, 16), 16, [40], junk=np.nan)
    query = normal(random, 4, 16).astype(jnp.bfloat16)
    k_pages, v_pages = (to_stored(jnp.asarray(pages), jnp.uint16) for pages in (cache.k_pages, cache.v_pages))
    out = paged_decode(jnp.asarray(query)[:, :, None], k_pages, v_pages, jnp.asarray(cache.tables), jnp.asarray([40]))
    keys, values = (each[0].astype(jnp.bfloat16).astype(np.float32) for each in (cache.keys, cache.values))
    expected = dense_attention(query.astype(np.float32), keys, values)
    assert np.abs(np.asarray(out)[:, :, 0].astype(np.float64) - expected).max() < 0.01 * np.abs(expected).max()
