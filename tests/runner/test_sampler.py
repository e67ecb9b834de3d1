"""The sampler's batches: padding, picked rows, slots."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from halfmoon.request import SamplingParams
from halfmoon.runner.batch import SampledTokens, SampleRow
from halfmoon.runner.buckets import BucketTable, PrefillBucket
from halfmoon.runner.sampler import Sampler, to_host

VOCAB, MAX_LEN = 40, 32
BUCKETS = BucketTable((PrefillBucket(16, 8),), (1, 4), (1,))
LOGITS: NDArray[np.float32] = (2 * np.random.RandomState(51).standard_normal((8, VOCAB))).astype(np.float32)
GREEDY = SamplingParams(8, temperature=0.0)


@pytest.fixture(scope="module")
def sampler() -> Sampler:
    made = Sampler(VOCAB, 4, MAX_LEN, BUCKETS)
    for _, compile_one in made.compile_steps([8]):
        compile_one()
    return made


def draw(sampler: Sampler, *rows: SampleRow) -> SampledTokens:
    """What is drawn, after it was counted."""
    drawn = sampler.draw(jnp.asarray(LOGITS), rows)
    sampler.count(rows, drawn.tokens)
    return to_host(drawn)


@pytest.mark.parametrize("places", [[0], [7], [0, 1, 2, 3], [6, 2, 2], [5, 1]])
def test_each_row_is_drawn_from_the_logits_it_names(sampler: Sampler, places: list[int]) -> None:
    drawn = draw(sampler, *[SampleRow(place, GREEDY, 0, 0) for place in places])
    np.testing.assert_array_equal(drawn.tokens[: len(places)], LOGITS[places].argmax(axis=1))


def test_a_row_is_drawn_alone_as_in_a_padded_batch(sampler: Sampler) -> None:
    params = SamplingParams(8, seed=(1 << 63) + 9, temperature=1.3, top_p=0.9)
    rows = [SampleRow(place, params, 2, place) for place in (3, 4, 5)]
    together = draw(sampler, *rows).tokens[:3].tolist()
    assert [int(draw(sampler, row).tokens[0]) for row in rows] == together


def test_all_64_bits_of_the_seed_arrive(sampler: Sampler) -> None:
    hot = [SamplingParams(8, seed=seed, temperature=9.0) for seed in (5, 5 + (1 << 32))]
    drawn = [[int(draw(sampler, SampleRow(0, each, 0, p)).tokens[0]) for p in range(12)] for each in hot]
    assert drawn[0] != drawn[1]


def test_a_top_k_past_the_devices_integers_is_no_limit(sampler: Sampler) -> None:
    huge, off = (SamplingParams(8, seed=6, temperature=3.0, top_k=top_k) for top_k in ((1 << 32) - 1, 0))
    rows = [SampleRow(place, params, 0, place) for params in (huge, off) for place in (0, 1)]
    tokens = draw(sampler, *rows).tokens.tolist()
    assert tokens[:2] == tokens[2:]


def test_log_probabilities_are_computed_where_a_row_asks(sampler: Sampler) -> None:
    asking = SamplingParams(8, temperature=0.0, logprobs=3)
    drawn = draw(sampler, SampleRow(0, GREEDY, 0, 0), SampleRow(1, asking, 0, 0))
    entry = drawn.at(1, 3)
    assert entry is not None
    assert entry.chosen is not None
    assert (entry.chosen.token_id, entry.chosen.rank) == (LOGITS[1].argmax(), 1)
    assert [each.token_id for each in entry.top] == np.argsort(-LOGITS[1])[:3].tolist()
    assert [each.rank for each in entry.top] == [1, 2, 3]
    assert entry.top[0].logprob == entry.chosen.logprob
    assert drawn.at(0, None) is None
    without = drawn.at(1, 0)
    assert without is not None
    assert without.top == ()


def test_a_slot_counts_what_is_drawn(sampler: Sampler) -> None:
    """Greedy with a penalty that forbids every token once written."""
    params = SamplingParams(8, temperature=0.0, frequency_penalty=2.0, presence_penalty=100.0)
    order = np.argsort(-LOGITS[0])
    sampler.fill_slot(2, params, [int(order[5])], [int(order[0])], [])
    drawn = [int(draw(sampler, SampleRow(0, params, 0, p, slot=2)).tokens[0]) for p in range(1, 5)]
    assert drawn == order[1:5].tolist(), "the prompt counts for the repetition penalty alone"


def test_a_slot_that_is_filled_again_forgets_the_sequence_before(sampler: Sampler) -> None:
    params = SamplingParams(8, temperature=0.0, presence_penalty=100.0, logit_bias={3: 50.0}, min_tokens=1)
    sampler.fill_slot(1, params, [1], [2], [4])
    draw(sampler, SampleRow(0, params, 0, 0, slot=1))
    sampler.fill_slot(1, SamplingParams(8, temperature=0.0, presence_penalty=1.0), [], [], [])
    best = int(LOGITS[0].argmax())
    assert draw(sampler, SampleRow(0, params, 0, 0, slot=1)).tokens[0] == best


def test_end_tokens_are_forbidden_below_min_tokens(sampler: Sampler) -> None:
    params = SamplingParams(8, temperature=0.0, min_tokens=2)
    best, second = (int(token) for token in np.argsort(-LOGITS[0])[:2])
    sampler.fill_slot(3, params, [], [], [best])
    drawn = [int(draw(sampler, SampleRow(0, params, 0, position, slot=3)).tokens[0]) for position in range(4)]
    assert drawn == [second, second, best, best]


def test_rows_without_a_slot_are_untouched_by_neighbours_with_one(sampler: Sampler) -> None:
    params = SamplingParams(8, temperature=0.0, logit_bias={0: 90.0})
    sampler.fill_slot(1, params, [], [], [])
    drawn = draw(sampler, SampleRow(0, GREEDY, 0, 0), SampleRow(0, params, 0, 0, slot=1))
    assert drawn.tokens[:2].tolist() == [LOGITS[0].argmax(), 0]
