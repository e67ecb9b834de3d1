"""Which tokens can be drawn: exactly those that temperature, top-k, top-p and min-p leave."""

import numpy as np
import pytest

from tests.kernels.sampling import Draw, Floats, draw, log_softmax

VOCAB, DRAWS = 16, 4096
LOGITS: Floats = np.random.RandomState(11).permutation(np.linspace(0.0, 2.4, VOCAB)).astype(np.float32)


def drawn(how: Draw, logits: Floats = LOGITS) -> set[int]:
    """Tokens that many draws give."""
    return set(draw(np.tile(logits, (DRAWS, 1)), how).tokens.tolist())


def support(logits: Floats, temperature: float, top_k: int, top_p: float, min_p: float) -> set[int]:
    """top-k, then the fewest likeliest tokens that hold top_p of what is left, then those likely enough for min_p."""
    scores = logits.astype(np.float64) / temperature
    left = np.argsort(-scores)[: top_k or VOCAB]
    shares = np.exp(log_softmax((scores[left]).astype(np.float32)))
    if top_p < 1:
        left = left[: int(np.searchsorted(np.cumsum(shares), top_p)) + 1]
    return {int(token) for token in left if scores[token] - scores.max() >= np.log(min_p or 1e-300)}


@pytest.mark.parametrize("top_k", [0, 1, 2, 7, 15, 16, 17, 1000])
def test_top_k_leaves_exactly_the_k_best(top_k: int) -> None:
    everywhere = Draw(positions=np.arange(DRAWS), top_k=top_k)
    assert drawn(everywhere) == set(np.argsort(-LOGITS)[: top_k or VOCAB].tolist())


@pytest.mark.parametrize("top_p", [1e-6, 0.05, 0.2, 0.5, 0.9, 0.95, 0.999999, 1.0])
def test_top_p_leaves_the_smallest_set_that_holds_it(top_p: float) -> None:
    assert drawn(Draw(positions=np.arange(DRAWS), top_p=top_p)) == support(LOGITS, 1.0, 0, top_p, 0.0)


@pytest.mark.parametrize("min_p", [0.0, 0.1, 0.3, 0.9, 1.0])
def test_min_p_is_relative_to_the_best(min_p: float) -> None:
    assert drawn(Draw(positions=np.arange(DRAWS), min_p=min_p)) == support(LOGITS, 1.0, 0, 1.0, min_p)


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p"),
    [(1.0, 5, 0.7, 0.0), (1.0, 12, 0.9, 0.3), (0.5, 8, 0.8, 0.05), (2.0, 10, 0.85, 0.6), (1.5, 3, 1.0, 0.9)],
)
def test_limits_hold_together_and_after_temperature(temperature: float, top_k: int, top_p: float, min_p: float) -> None:
    how = Draw(temperature, top_p, top_k, min_p, positions=np.arange(DRAWS))
    assert drawn(how) == support(LOGITS, temperature, top_k, top_p, min_p)


def test_rows_with_different_limits_do_not_disturb_each_other() -> None:
    top_k = np.arange(DRAWS) % 4 + 1
    tokens = draw(np.tile(LOGITS, (DRAWS, 1)), Draw(positions=np.arange(DRAWS), top_k=top_k)).tokens
    for k in range(1, 5):
        assert set(tokens[top_k == k].tolist()) == set(np.argsort(-LOGITS)[:k].tolist())


def test_tokens_of_equal_score_stay_together() -> None:
    tied: Floats = np.array([0.0, 1.0, 1.0, 1.0] + [-1.0] * (VOCAB - 4), np.float32)
    assert drawn(Draw(positions=np.arange(DRAWS), top_k=2), tied) == {1, 2, 3}
    zeros: Floats = np.array([0.0, -0.0] + [-1.0] * (VOCAB - 2), np.float32)
    assert drawn(Draw(positions=np.arange(DRAWS), top_k=1), zeros) == {0, 1}


def test_impossible_tokens_are_never_drawn() -> None:
    logits = LOGITS.copy()
    logits[::2] = -np.inf
    odd = set(range(1, VOCAB, 2))
    for how in (Draw(), Draw(top_k=12), Draw(top_p=0.999999), Draw(min_p=1e-9), Draw(temperature=50.0)):
        everywhere = Draw(how.temperature, how.top_p, how.top_k, how.min_p, positions=np.arange(DRAWS))
        assert drawn(everywhere, logits) == odd


@pytest.mark.parametrize("how", [Draw(temperature=0.0), Draw(top_p=0.0), Draw(top_k=1), Draw(temperature=1e-6)])
def test_these_rows_take_the_best_token(how: Draw) -> None:
    logits = 30 * np.random.RandomState(12).standard_normal((DRAWS, VOCAB)).astype(np.float32)
    np.testing.assert_array_equal(draw(logits, how).tokens, logits.argmax(axis=1))


@pytest.mark.parametrize("offset", [-1000.0, 1000.0])
@pytest.mark.parametrize("temperature", [1e-37, 1e-42])
def test_no_temperature_is_too_small_for_large_logits(temperature: float, offset: float) -> None:
    logits = np.random.RandomState(13).standard_normal((DRAWS, VOCAB)).astype(np.float32) + np.float32(offset)
    tokens = draw(logits, Draw(temperature=temperature, top_p=0.9)).tokens
    np.testing.assert_array_equal(np.take_along_axis(logits, tokens[:, None], 1)[:, 0], logits.max(axis=1))
