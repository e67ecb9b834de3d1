"""A runner in bfloat16, whose caches are bit patterns on CPU: in place too, and right within the type's precision."""

import jax.numpy as jnp
import numpy as np
import pytest

from halfmoon.runner.batch import Chunk, DecodeRow
from halfmoon.runner.buckets import BucketTable, PrefillBucket
from halfmoon.runner.runner import Runner
from tests.models.families import load_reference
from tests.runner.hlo import cache_sized_results
from tests.runner.small import CACHE_SHAPE, make_runner

BUCKETS = BucketTable((PrefillBucket(64, 16),), (1,), (2,))
CASE = load_reference("llama")[1]
TOLERANCE = 0.05
"""Of the largest logit: two layers, each rounded to 8 bits several times."""


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return make_runner(tmp_path_factory.mktemp("half"), dtype="bfloat16", buckets=BUCKETS)


def test_no_step_copies_or_converts_the_cache(half: Runner) -> None:
    for name, text in half.texts().items():
        assert cache_sized_results(text, CACHE_SHAPE) == [], name


def test_prefill_and_decode_are_close_to_the_reference(half: Runner) -> None:
    tokens, expected = CASE["prompt_token_ids"], np.asarray(CASE["logits"][-1])
    whole = half.prefill([Chunk(tokens, 0, [5, 1, 9], True)], BUCKETS.prefill[0])
    half.prefill([Chunk(tokens[:-1], 0, [7, 3, 2], False)], BUCKETS.prefill[0])
    decoded = half.decode([DecodeRow(tokens[-1], len(tokens) - 1, [7, 3, 2])])
    for logits in (whole.logits, decoded):
        assert np.abs(np.asarray(logits)[0] - expected).max() < TOLERANCE * np.abs(expected).max()


def test_pages_travel_as_bfloat16_and_keep_their_bits(half: Runner) -> None:
    random = np.random.RandomState(3)
    blocks = [random.standard_normal(half.config.geometry.shape).astype(jnp.bfloat16) for _ in range(2)]
    half.scatter_pages([4, 8], blocks)
    half.copy_page(8, 6)
    ((array, count),) = half.gather_pages([4, 6])
    assert (array.dtype, count) == (jnp.bfloat16, 2)
    assert array.nbytes == 2 * half.config.geometry.block_bytes
    np.testing.assert_array_equal(np.asarray(array), np.stack(blocks))
