"""Penalties, biases and forbidden end tokens change the logits as their definitions say."""

import jax
import numpy as np
import pytest

from halfmoon.kernels.sample import SlotState, count_tokens, empty_slots
from tests.kernels.sampling import Draw, Floats, Slot, draw, fill, greedy

VOCAB, ROWS = 24, 64
LOGITS: Floats = (2 * np.random.RandomState(31).standard_normal((ROWS, VOCAB))).astype(np.float32)
PROMPT, OUTPUT = [0, 1, 2, 3, 3, 4, 5, 6, 7], [6, 7, 8, 9, 9, 9, 10, 11, 11, 12]


def table(slot: Slot) -> SlotState:
    """Slot 1 filled over what another sequence left there."""
    used = fill(empty_slots(3, VOCAB), 1, Slot([20, 21], [22, 22], [23], ((19, -50.0),)))
    return fill(used, 1, slot)


def adjusted(presence: float, frequency: float, repetition: float) -> Floats:
    """Hugging Face's repetition penalty over prompt and output, then OpenAI's penalties over the output."""
    logits, counts = LOGITS.astype(np.float64), np.bincount(OUTPUT, minlength=VOCAB)
    for token in {*PROMPT, *OUTPUT}:
        column = logits[:, token]
        logits[:, token] = np.where(column < 0, column * repetition, column / repetition)
    result: Floats = (logits - frequency * counts - presence * (counts > 0)).astype(np.float32)
    return result


@pytest.mark.parametrize(
    ("presence", "frequency", "repetition"),
    [(0.8, 0.0, 1.0), (-0.8, 0.0, 1.0), (0.0, 0.6, 1.0), (0.0, 0.0, 1.7), (0.0, 0.0, 0.6), (0.3, 0.4, 1.2)],
)
def test_penalties_follow_their_formulas(presence: float, frequency: float, repetition: float) -> None:
    how = Draw(presence=presence, frequency=frequency, repetition=repetition, slots=1)
    tokens = greedy(LOGITS, how, table(Slot(PROMPT, OUTPUT)))
    np.testing.assert_array_equal(tokens, adjusted(presence, frequency, repetition).argmax(axis=1))
    assert (tokens != LOGITS.argmax(axis=1)).any()


def test_a_token_written_on_the_device_counts_like_one_given() -> None:
    state = table(Slot(PROMPT, OUTPUT[:-2]))
    for token in OUTPUT[-2:]:
        state = jax.jit(count_tokens)(state, np.array([1, 0], np.int32), np.array([token, 5], np.int32))
    np.testing.assert_array_equal(state.counts[1], np.bincount(OUTPUT, minlength=VOCAB))
    assert not np.asarray(state.counts[2]).any()


def test_biases_are_added() -> None:
    bias = ((0, 3.0), (5, -100.0), (17, 1.5))
    expected = LOGITS.copy()
    for token, value in bias:
        expected[:, token] += np.float32(value)
    np.testing.assert_array_equal(greedy(LOGITS, Draw(slots=1), table(Slot(bias=bias))), expected.argmax(axis=1))


def test_end_tokens_are_forbidden_until_enough_is_written() -> None:
    likely = LOGITS.copy()
    likely[:, [4, 9]] += 20
    state = table(Slot(stops=[4, 9]))
    expected = np.delete(LOGITS, [4, 9], axis=1).argmax(axis=1)
    kept = np.delete(np.arange(VOCAB), [4, 9])
    np.testing.assert_array_equal(greedy(likely, Draw(slots=1, suppress_stops=True), state), kept[expected])
    assert set(greedy(likely, Draw(slots=1), state).tolist()) <= {4, 9}
    drawn = draw(likely, Draw(slots=1, suppress_stops=True, temperature=5.0, positions=np.arange(ROWS)), state)
    assert not set(drawn.tokens.tolist()) & {4, 9}


def test_a_row_in_slot_0_is_untouched_by_adjusted_neighbours() -> None:
    state = table(Slot(PROMPT, OUTPUT, bias=((3, 50.0),)))
    slots = np.arange(ROWS) % 2
    tokens = greedy(LOGITS, Draw(slots=slots), state)
    np.testing.assert_array_equal(tokens[slots == 0], LOGITS[slots == 0].argmax(axis=1))
    assert (tokens[slots == 1] == 3).all()
