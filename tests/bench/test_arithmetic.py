"""Percentiles and shares, against numpy and against what they promise."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.arithmetic import apportion, describe, percentile

VALUES = st.lists(st.floats(0, 1e6), min_size=1, max_size=200)


@given(VALUES, st.floats(0, 1))
def test_percentile_is_numpys(values: list[float], share: float) -> None:
    assert percentile(sorted(values), share) == pytest.approx(np.quantile(values, share), rel=1e-9, abs=1e-9)


@given(VALUES)
def test_a_distribution_is_numpys(values: list[float]) -> None:
    got = describe(values)
    assert got is not None
    assert got.count == len(values)
    wanted = [np.mean(values), *np.quantile(values, [0.5, 0.9, 0.99])]
    assert [got.mean, got.p50, got.p90, got.p99] == pytest.approx(wanted, rel=1e-9, abs=1e-9)


def test_no_values_have_no_distribution() -> None:
    assert describe([]) is None
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


@given(st.integers(0, 1000), st.lists(st.integers(0, 50), min_size=1, max_size=40))
def test_shares_are_whole_sum_up_and_differ_from_proportion_by_less_than_one(total: int, weights: list[int]) -> None:
    shares = apportion(total, weights)
    assert sum(shares) == total
    scale = sum(weights) or len(weights)
    for share, weight in zip(shares, weights if any(weights) else [1] * len(weights), strict=True):
        assert math.isclose(share, total * weight / scale, abs_tol=1.0)


def test_nothing_is_shared_among_nobody() -> None:
    assert apportion(0, []) == []
