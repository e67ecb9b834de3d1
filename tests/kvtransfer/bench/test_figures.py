"""The arithmetic of the bench."""

import pytest

from kvtransfer.bench.figures import Figures, figures, percentile, ratio


def rates(*values: float) -> Figures:
    return Figures(values, p50=1.0, p99=1.0, cpu_per_gb=1.0)


def test_the_rate_is_the_median_of_the_rounds_of_the_median_batch() -> None:
    found = figures(2_000_000_000, [[1.0, 1.0, 50.0], [2.0], [4.0]], cpu_seconds=0.0)
    assert found.rates == (2.0, 1.0, 0.5)
    assert found.rate == 1.0


def test_percentiles_are_of_all_batches_of_all_rounds() -> None:
    found = figures(1000, [[float(number) for number in range(1, 51)], [float(number) for number in range(51, 101)]], 0)
    assert (found.p50, found.p99) == (50.0, 99.0)


def test_processor_time_is_told_for_each_gigabyte_moved() -> None:
    assert figures(500_000_000, [[1.0, 1.0], [1.0, 1.0]], cpu_seconds=3.0).cpu_per_gb == 1.5


@pytest.mark.parametrize("rounds", [[], [[]], [[1.0], []]])
def test_no_batches_have_no_figures(rounds: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="no batches"):
        figures(1000, rounds, 0.0)


def test_a_ratio_compares_within_each_round() -> None:
    slow_machine_in_the_second_round = ratio(rates(4.0, 1.0, 6.0), rates(2.0, 0.5, 2.0))
    assert slow_machine_in_the_second_round == 2.0


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1.0), (0.25, 1.0), (0.26, 2.0), (0.5, 2.0), (0.99, 4.0), (1.0, 4.0)]
)
def test_a_percentile_is_one_of_the_values(share: float, expected: float) -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], share) == expected
