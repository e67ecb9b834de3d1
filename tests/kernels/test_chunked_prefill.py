"""Attention of runs of new tokens equals dense causal attention, wherever the runs begin."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest

from halfmoon.kernels.chunked_prefill import chunked_prefill
from tests.kernels.dense import Floats, Heads, Ints, Paged, assert_rows_close, dense_attention, normal, paged

pytestmark = pytest.mark.usefixtures("kernels")

MHA, GQA, MQA = Heads(3, 3, 16), Heads(6, 2, 64), Heads(4, 1, 80)


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a step: it begins at `start` of sequence `sequence`."""

    sequence: int
    start: int


def attend(queries: Floats, cache: Paged, runs: list[Run]) -> Floats:
    """Output [tokens, heads, head_dim] of queries [tokens, heads, head_dim], the runs' one after the other."""
    tables: Ints = cache.tables[[run.sequence for run in runs]]
    starts = np.array([run.start for run in runs], np.int32)
    q = queries.transpose(1, 2, 0)
    out = chunked_prefill(*map(jnp.asarray, (q, cache.k_pages, cache.v_pages, tables, starts)))
    return np.asarray(out).transpose(2, 0, 1)


def assert_equals_dense(queries: Floats, cache: Paged, runs: list[Run]) -> None:
    """Rows beyond a sequence's end are padding, of which nothing is expected."""
    out, length = attend(queries, cache, runs), len(queries) // len(runs)
    for index, run in enumerate(runs):
        keys, values = cache.keys[run.sequence], cache.values[run.sequence]
        for offset in range(min(length, keys.shape[1] - run.start)):
            row, end = index * length + offset, run.start + offset + 1
            assert_rows_close(out[row], dense_attention(queries[row], keys[:, :end], values[:, :end]))


@pytest.mark.parametrize(
    ("heads", "page_size", "length"),
    [(MHA, 16, 8), (GQA, 16, 16), (MQA, 64, 16), (GQA, 64, 64), (MHA, 64, 64), (MQA, 128, 64)],
)
def test_equals_dense_causal_attention(heads: Heads, page_size: int, length: int) -> None:
    """Runs of several sequences in one step: a sequence's start, its middle, its ragged end."""
    random = np.random.RandomState(page_size + length + heads.heads)
    cache = paged(random, heads, page_size, [length - 3, 3 * length, 270])
    ragged = 269 // length * length
    runs = [Run(0, 0), Run(1, length), Run(1, 2 * length), Run(2, 128), Run(2, ragged)]
    queries = normal(random, len(runs) * length, heads.heads, heads.head_dim)
    assert_equals_dense(queries, cache, runs)


@pytest.mark.parametrize("junk", [np.nan, np.inf])
def test_what_lies_beyond_a_run_has_no_effect(junk: float) -> None:
    """In other pages, in pages that the table names but the run does not reach, in the last page's tail."""
    lengths, runs = [8, 24, 160], [Run(0, 0), Run(1, 16), Run(2, 152)]
    clean, dirty = (paged(np.random.RandomState(2), MHA, 16, lengths, unused_entries=5, junk=j) for j in (0.0, junk))
    queries = normal(np.random.RandomState(3), 24, MHA.heads, MHA.head_dim)
    np.testing.assert_array_equal(attend(queries, dirty, runs), attend(queries, clean, runs))


def test_later_tokens_of_the_run_have_no_effect_on_earlier_ones() -> None:
    random = np.random.RandomState(6)
    cache = paged(random, GQA, 64, [64])
    queries = normal(random, 64, GQA.heads, GQA.head_dim)
    before = attend(queries, cache, [Run(0, 0)])
    page = int(cache.tables[0, 0])
    cache.k_pages[page, :, :, 40:] = 9.0
    cache.v_pages[page, :, 40:] = 9.0
    after = attend(queries, cache, [Run(0, 0)])
    np.testing.assert_array_equal(before[:40], after[:40])
    assert not np.array_equal(before[40:], after[40:])


def test_padding_runs_disturb_nobody() -> None:
    random = np.random.RandomState(7)
    cache = paged(random, GQA, 64, [16, 1])
    cache.k_pages[0] = cache.v_pages[0] = 0
    cache.tables[1] = 0
    queries = normal(random, 32, GQA.heads, GQA.head_dim)
    out = attend(queries, cache, [Run(0, 0), Run(1, 0)])
    assert np.isfinite(out).all()
    assert_equals_dense(queries[:16], cache, [Run(0, 0)])
    np.testing.assert_array_equal(out[:16], attend(queries, cache, [Run(0, 0), Run(0, 0)])[:16])
