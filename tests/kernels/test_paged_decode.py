"""Decode attention over pages equals dense attention over the sequences that the pages hold."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from halfmoon.kernels.paged_decode import paged_decode
from tests.kernels.dense import Floats, Heads, Paged, assert_rows_close, dense_attention, normal, paged

pytestmark = pytest.mark.usefixtures("kernels")

MHA, GQA, MQA = Heads(3, 3, 16), Heads(9, 3, 64), Heads(8, 1, 80)


def attend(queries: Floats, cache: Paged, lengths: list[int]) -> Floats:
    """Output [B, heads, head_dim] of queries [B, heads, head_dim]."""
    q, sizes = queries.transpose(1, 2, 0), np.array(lengths, np.int32)
    out = paged_decode(*map(jnp.asarray, (q, cache.k_pages, cache.v_pages, cache.tables, sizes)))
    return np.asarray(out).transpose(2, 0, 1)


def expected(queries: Floats, cache: Paged) -> list[object]:
    return [dense_attention(q, k, v) for q, k, v in zip(queries, cache.keys, cache.values, strict=True)]


@pytest.mark.parametrize(("heads", "page_size"), [(MHA, 16), (MHA, 128), (GQA, 64), (GQA, 16), (MQA, 64), (MQA, 128)])
def test_equals_dense_attention(heads: Heads, page_size: int) -> None:
    random = np.random.RandomState(page_size + heads.heads)
    lengths = [1, page_size - 1, page_size, page_size + 1, 127, 128, 129, 300]
    cache = paged(random, heads, page_size, lengths)
    queries = normal(random, len(lengths), heads.heads, heads.head_dim)
    assert_rows_close(attend(queries, cache, lengths), expected(queries, cache))


def test_scores_of_any_size_stay_finite() -> None:
    random = np.random.RandomState(1)
    lengths = [5, 200]
    cache = paged(random, GQA, 64, lengths)
    queries = 300 * normal(random, len(lengths), GQA.heads, GQA.head_dim)
    assert_rows_close(attend(queries, cache, lengths), expected(queries, cache))


@pytest.mark.parametrize("junk", [np.nan, np.inf])
def test_what_lies_beyond_a_sequence_has_no_effect(junk: float) -> None:
    """In other pages, in pages that the table names but the sequence has not reached, in the last page's tail."""
    lengths = [1, 15, 16, 17, 130]
    clean, dirty = (paged(np.random.RandomState(2), MHA, 16, lengths, unused_entries=5, junk=j) for j in (0.0, junk))
    queries = normal(np.random.RandomState(3), len(lengths), MHA.heads, MHA.head_dim)
    np.testing.assert_array_equal(attend(queries, dirty, lengths), attend(queries, clean, lengths))


def test_a_row_is_independent_of_its_neighbours() -> None:
    random = np.random.RandomState(4)
    lengths = [40, 1, 129]
    cache = paged(random, GQA, 64, lengths)
    queries = normal(random, len(lengths), GQA.heads, GQA.head_dim)
    together = attend(queries, cache, lengths)
    alone = attend(queries[1:2], replace(cache, tables=cache.tables[1:2]), lengths[1:2])
    assert_rows_close(alone, together[1:2])


def test_padding_rows_read_the_scratch_page_and_disturb_nobody() -> None:
    random = np.random.RandomState(5)
    cache = paged(random, MHA, 16, [20])
    queries = normal(random, 4, MHA.heads, MHA.head_dim)
    tables = np.zeros((4, cache.tables.shape[1]), np.int32)
    tables[0] = cache.tables[0]
    cache.k_pages[0] = cache.v_pages[0] = 0
    out = attend(queries, replace(cache, tables=tables), [20, 1, 1, 1])
    assert_rows_close(out[:1], expected(queries[:1], cache))
    assert np.isfinite(out).all()
