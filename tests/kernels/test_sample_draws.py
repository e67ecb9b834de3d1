"""A draw follows the distribution, and depends on seed, choice and position alone."""

import numpy as np
import pytest

from tests.kernels.sampling import Draw, Floats, Result, draw, log_softmax, without

VOCAB, ROWS = 300, 8
LOGITS: Floats = (2 * np.random.RandomState(21).standard_normal((ROWS, VOCAB))).astype(np.float32)
SEEDS = [7, 1 << 63, (1 << 64) - 1, 12345678901234567890, 1, 0, 99, 1 << 32]
MIXED = Draw(
    temperature=[1.0, 0.7, 1.5, 0.0, 1.0, 2.0, 1.0, 1.0],
    top_p=[1.0, 0.9, 0.8, 1.0, 1.0, 0.99, 0.0, 1.0],
    top_k=[0, 0, 50, 0, 5, 0, 0, 0],
    seeds=SEEDS,
    choices=[0, 1, 2, 3, 0, 0, 0, 0],
    positions=[0, 5, 9, 0, 1000, 3, 0, 1],
)
CHI_SQUARE_LIMIT = 40.5
"""A true sampler exceeds it once in a million times (7 degrees of freedom)."""


def row_of(how: Draw, row: int) -> Draw:
    """A draw of one row alone."""
    temperature, top_p, top_k = (np.asarray(each)[row] for each in (how.temperature, how.top_p, how.top_k))
    choices, positions = np.asarray(how.choices)[row], np.asarray(how.positions)[row]
    return Draw(temperature, top_p, top_k, seeds=SEEDS[row], choices=choices, positions=positions)


def test_a_row_is_drawn_alone_as_among_others() -> None:
    together = draw(LOGITS, MIXED).tokens
    for row in range(ROWS):
        alone = draw(LOGITS[row : row + 1], row_of(MIXED, row)).tokens
        padded = draw(np.tile(LOGITS[row], (3, 1)), row_of(MIXED, row)).tokens
        assert alone[0] == padded[0] == together[row]


def test_work_done_for_a_neighbour_changes_no_row() -> None:
    lazy = without("adjust", "truncate", "logprobs")
    plain = Draw(seeds=SEEDS)
    np.testing.assert_array_equal(draw(LOGITS, plain).tokens, draw(LOGITS, plain, flags=lazy).tokens)


def test_without_a_row_to_draw_all_are_greedy() -> None:
    idle = without("draw")
    np.testing.assert_array_equal(draw(LOGITS, Draw(temperature=0.0), flags=idle).tokens, LOGITS.argmax(axis=1))


def flat(rows: int, how: Draw) -> Result:
    return draw(np.zeros((rows, VOCAB), np.float32), how)


@pytest.mark.parametrize(("left", "right"), [(3, 3 + (1 << 32)), (3, 3 + (1 << 63)), (3, 4), (1 << 32, 2 << 32)])
def test_each_of_the_64_bits_of_a_seed_counts(left: int, right: int) -> None:
    first, second = (flat(64, Draw(seeds=seed, positions=np.arange(64))).tokens for seed in (left, right))
    assert np.mean(first == second) < 0.1


def test_choices_and_positions_draw_independently() -> None:
    grid = flat(64, Draw(seeds=5, choices=np.repeat(np.arange(8), 8), positions=np.tile(np.arange(8), 8))).tokens
    assert len(set(grid.tolist())) > 40
    by_choice = grid.reshape(8, 8)
    assert np.mean(by_choice == by_choice.T) < 0.3, "(choice, position) and (position, choice) are different draws"


def test_the_first_of_many_choices_is_the_only_one_of_one() -> None:
    many = flat(4, Draw(seeds=8, choices=np.arange(4), positions=6)).tokens
    assert many[0] == flat(1, Draw(seeds=8, positions=6)).tokens[0]


@pytest.mark.parametrize("varied", ["positions", "seeds", "choices"])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_draws_follow_the_softmax(varied: str, temperature: float) -> None:
    rows = 16384
    logits: Floats = np.array([0.0, 1.0, -1.0, 2.0, 0.5, -0.5, 1.5, 0.2], np.float32)
    numbers = np.arange(rows)
    ways = {
        "positions": Draw(temperature, positions=numbers, seeds=17),
        "seeds": Draw(temperature, seeds=numbers.tolist()),
        "choices": Draw(temperature, choices=numbers, seeds=18),
    }
    tokens = draw(np.tile(logits, (rows, 1)), ways[varied]).tokens
    expected = rows * np.exp(log_softmax(logits / np.float32(temperature)))
    seen = np.bincount(tokens, minlength=len(logits))
    assert ((seen - expected) ** 2 / expected).sum() < CHI_SQUARE_LIMIT
