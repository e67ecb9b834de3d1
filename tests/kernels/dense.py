"""Paged caches of random sequences, and dense attention over them in float64 numpy: what the kernels are judged by."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]

TOLERANCE = 1e-5
"""Largest error of a float32 row, relative to the row's largest value."""

JUNK = 1e4
"""Fills what no sequence owns: finite, and far beyond any real key or value."""


@dataclass(frozen=True, slots=True)
class Heads:
    """Query heads, heads of keys and values, and their size."""

    heads: int
    kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class Paged:
    """Sequences in pages: `keys[i]`, `values[i]` [kv_heads, length, head_dim] are what sequence i's pages hold."""

    k_pages: Floats
    v_pages: Floats
    tables: Ints
    keys: list[Floats]
    values: list[Floats]


def normal(random: np.random.RandomState, *shape: int) -> Floats:
    """Standard normal float32 values."""
    return random.standard_normal(shape).astype(np.float32)


def paged(
    random: np.random.RandomState,
    heads: Heads,
    page_size: int,
    lengths: list[int],
    *,
    unused_entries: int = 1,
    junk: float = JUNK,
) -> Paged:
    """Random sequences in pages drawn at random; everything else in the caches is `junk`.

    Each table has `unused_entries` entries beyond its own longest need, which name pages at random.
    """
    needs = [-(-length // page_size) for length in lengths]
    width = max(needs) + unused_entries
    total = 1 + sum(needs) + 3
    k_pages = np.full((total, heads.kv_heads, heads.head_dim, page_size), junk, np.float32)
    v_pages = np.full((total, heads.kv_heads, page_size, heads.head_dim), junk, np.float32)
    free = (1 + random.permutation(total - 1)).astype(np.int32)
    tables = random.randint(0, total, (len(lengths), width)).astype(np.int32)
    keys = [normal(random, heads.kv_heads, length, heads.head_dim) for length in lengths]
    values = [normal(random, heads.kv_heads, length, heads.head_dim) for length in lengths]
    for row, length in enumerate(lengths):
        tables[row, : needs[row]], free = free[: needs[row]], free[needs[row] :]
        for position in range(length):
            page, slot = tables[row, position // page_size], position % page_size
            k_pages[page, :, :, slot] = keys[row][:, position]
            v_pages[page, :, slot, :] = values[row][:, position]
    return Paged(k_pages, v_pages, tables, keys, values)


def dense_attention(query: Floats, keys: Floats, values: Floats) -> NDArray[np.float64]:
    """One position: query [heads, head_dim] over keys and values [kv_heads, length, head_dim]: [heads, head_dim]."""
    group = query.shape[0] // keys.shape[0]
    k, v = (np.repeat(each.astype(np.float64), group, axis=0) for each in (keys, values))
    scores = np.einsum("hd,htd->ht", query.astype(np.float64), k) / query.shape[1] ** 0.5
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    output: NDArray[np.float64] = np.einsum("ht,htd->hd", weights / weights.sum(axis=1, keepdims=True), v)
    return output


def assert_rows_close(actual: object, expected: object) -> None:
    """Both [..., rows, features]: each row within TOLERANCE of the expected one's largest value."""
    got, wanted = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert got.shape == wanted.shape
    errors = np.abs(got - wanted).max(axis=-1) / np.abs(wanted).max(axis=-1)
    assert errors.max() < TOLERANCE, f"relative error {errors.max():.1e}"
