"""Log-probabilities are those of the raw logits, with exact ranks and the 20 best alternatives.

Tolerance: 2e-6 times the magnitude of the log-probability, or of 1 where that is smaller.
"""

import jax
import numpy as np
from numpy.typing import NDArray

from halfmoon.config import MAX_LOGPROBS
from halfmoon.kernels.sample import empty_slots, logprobs_of
from tests.kernels.sampling import Draw, Floats, Slot, draw, fill, log_softmax, without

VOCAB, ROWS = 300, 16
LOGITS: Floats = (3 * np.random.RandomState(41).standard_normal((ROWS, VOCAB))).astype(np.float32)
PLACES = np.arange(ROWS)


def assert_close(actual: Floats, expected: NDArray[np.float64]) -> None:
    np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=2e-6)


def test_chosen_and_best_equal_log_softmax_in_float64() -> None:
    result, expected = draw(LOGITS, Draw(temperature=3.0, positions=PLACES)), log_softmax(LOGITS)
    assert_close(result.logprobs, expected[PLACES, result.tokens])
    assert_close(result.top_logprobs, -np.sort(-expected)[:, :MAX_LOGPROBS])
    np.testing.assert_array_equal(result.top_ids, np.argsort(-expected)[:, :MAX_LOGPROBS])


def test_ranks_count_the_better_tokens() -> None:
    result = draw(LOGITS, Draw(temperature=3.0, positions=PLACES))
    better = (LOGITS[PLACES, result.tokens][:, None] < LOGITS).sum(axis=1)
    np.testing.assert_array_equal(result.ranks, 1 + better)
    assert result.ranks.max() > MAX_LOGPROBS, "a draw outside of the best 20 is part of this test"


def test_what_changes_the_draw_does_not_change_the_log_probabilities() -> None:
    slots = fill(empty_slots(2, VOCAB), 1, Slot([1, 2], [3, 4], [5], ((6, 90.0),)))
    how = Draw(0.5, 0.9, 40, 0.01, 1.0, 1.0, 1.5, positions=PLACES, slots=1, suppress_stops=True)
    result, expected = draw(LOGITS, how, slots), log_softmax(LOGITS)
    assert (result.tokens == 6).any()
    assert_close(result.logprobs, expected[PLACES, result.tokens])
    assert_close(result.top_logprobs, -np.sort(-expected)[:, :MAX_LOGPROBS])


def test_impossible_tokens_have_no_probability() -> None:
    logits = LOGITS.copy()
    logits[:, 10:] = -np.inf
    result = draw(logits, Draw(positions=PLACES))
    assert result.tokens.max() < 10
    assert_close(result.top_logprobs[:, :10], -np.sort(-log_softmax(LOGITS[:, :10])))
    assert np.isneginf(result.top_logprobs[:, 10:]).all()


def test_large_logits_lose_no_precision() -> None:
    result, expected = draw(LOGITS + 64, Draw(temperature=0.0)), log_softmax(LOGITS + np.float32(64))
    np.testing.assert_allclose(result.logprobs, expected.max(axis=1), atol=1e-5)


def test_a_small_vocabulary_gives_all_it_has() -> None:
    result = draw(LOGITS[:, :7], Draw(temperature=0.0))
    assert result.top_ids.shape == result.top_logprobs.shape == (ROWS, 7)
    np.testing.assert_array_equal(np.sort(result.top_ids), np.tile(np.arange(7), (ROWS, 1)))


def test_given_tokens_are_scored() -> None:
    targets = np.random.RandomState(42).randint(0, VOCAB, ROWS).astype(np.int32)
    scored = jax.jit(logprobs_of)(LOGITS, targets)
    np.testing.assert_array_equal(scored.tokens, targets)
    assert_close(np.asarray(scored.logprobs), log_softmax(LOGITS)[PLACES, targets])
    np.testing.assert_array_equal(scored.ranks, 1 + (LOGITS[PLACES, targets][:, None] < LOGITS).sum(axis=1))


def test_nothing_is_computed_where_nobody_asks() -> None:
    result, asked = (
        draw(LOGITS, Draw(positions=PLACES), flags=without("logprobs")),
        draw(LOGITS, Draw(positions=PLACES)),
    )
    np.testing.assert_array_equal(result.tokens, asked.tokens)
    for field in (result.logprobs, result.ranks, result.top_logprobs):
        assert not field.any()
