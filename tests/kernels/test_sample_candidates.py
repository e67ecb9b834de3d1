"""Looking at the best tokens alone draws what looking at all of them draws, bit for bit, and says when it cannot."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from halfmoon.kernels.sample.candidates import CANDIDATES, best_tokens, draw_candidates
from halfmoon.kernels.sample.draw import draw as draw_fast
from halfmoon.kernels.sample.draw import draw_full
from halfmoon.kernels.sample.noise import LARGEST_NOISE, gumbel, row_keys
from tests.kernels.sampling import Draw, Floats, draw

VOCAB, ROWS = 5003, 64
_fast, _full, _best = jax.jit(draw_fast), jax.jit(draw_full), jax.jit(best_tokens)
NORMAL: Floats = np.random.RandomState(61).standard_normal((ROWS, VOCAB)).astype(np.float32)
PEAKED: Floats = NORMAL * 4
CLIFF: Floats = NORMAL + np.where(np.arange(VOCAB) % 500 == 3, np.float32(30), np.float32(0))
"""Eleven tokens that nothing outside of them can beat."""


def mix(seed: int) -> Draw:
    """Rows that each are drawn in a way of their own."""
    random = np.random.RandomState(seed)

    def some(*values: float) -> NDArray[np.float64]:
        return random.choice(values, ROWS)

    return Draw(
        temperature=some(0.2, 0.7, 1.0, 1.6),
        top_p=some(0.3, 0.9, 0.95, 1.0, 1.0),
        top_k=some(0, 0, 1, 40, CANDIDATES, CANDIDATES + 1, 1000, 10_000).astype(np.int32),
        min_p=some(0.0, 0.0, 0.05, 1.0),
        seeds=random.randint(0, 1 << 62, ROWS).tolist(),
        choices=random.randint(0, 8, ROWS),
        positions=random.randint(0, 4096, ROWS),
    )


def reference(logits: Floats, how: Draw) -> NDArray[np.int64]:
    """Sorted, in float64, with the kernel's noise."""
    params = how.at(ROWS)
    keys = row_keys(params.seeds, params.choices, params.positions)
    noise = np.asarray(gumbel(keys, jnp.arange(VOCAB)[None]), np.float64)
    tokens = []
    for row in range(ROWS):
        scores = (logits[row] - logits[row].max()).astype(np.float64) / float(params.temperature[row])
        order = np.argsort(-scores, kind="stable")
        kept = order[: int(params.top_k[row]) or VOCAB]
        shares = np.exp(scores[kept]) / np.exp(scores[kept]).sum()
        if params.top_p[row] < 1:
            kept = kept[: int(np.searchsorted(np.cumsum(shares), float(params.top_p[row]))) + 1]
        kept = kept[np.exp(scores[kept]) >= float(params.min_p[row])]
        tokens.append(kept[np.argmax(scores[kept] + noise[row, kept])])
    return np.array(tokens)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("logits", [NORMAL, PEAKED, CLIFF], ids=["normal", "peaked", "cliff"])
def test_mixed_rows_equal_the_full_draw_and_a_sorted_reference(logits: Floats, seed: int) -> None:
    how = mix(seed)
    tokens = np.asarray(_fast(logits, how.at(ROWS), True))
    np.testing.assert_array_equal(tokens, np.asarray(_full(logits, how.at(ROWS), True)))
    np.testing.assert_array_equal(tokens, reference(logits, how))


@pytest.mark.parametrize("logits", [NORMAL, PEAKED, CLIFF], ids=["normal", "peaked", "cliff"])
def test_untruncated_rows_equal_the_full_draw(logits: Floats) -> None:
    how = Draw(positions=np.arange(ROWS), temperature=np.linspace(0.1, 3, ROWS)).at(ROWS)
    np.testing.assert_array_equal(_fast(logits, how, False), _full(logits, how, False))


@pytest.mark.parametrize("vocab", [2049, 4096, VOCAB])
def test_candidates_are_the_best_tokens(vocab: int) -> None:
    logits = NORMAL[:, :vocab]
    best = _best(logits)
    np.testing.assert_array_equal(best.logits, -np.sort(-logits)[:, :CANDIDATES])
    np.testing.assert_array_equal(np.take_along_axis(logits, np.asarray(best.ids), 1), best.logits)


def decided(logits: Floats, how: Draw) -> NDArray[np.bool_]:
    """Rows that the candidates decide; all mass that is not theirs is in the total."""
    params, best = how.at(ROWS), best_tokens(jnp.asarray(logits))
    scores, total = best.logits - best.logits[:, :1], jnp.exp(logits - best.logits[:, :1]).sum(axis=1)
    keys = row_keys(params.seeds, params.choices, params.positions)
    return np.asarray(draw_candidates(best, scores, total, keys, params)[1])


def test_candidates_decide_what_is_narrow_and_leave_what_is_wide() -> None:
    for narrow in (Draw(top_k=1), Draw(top_k=CANDIDATES - 1, top_p=0.9), Draw(min_p=0.5)):
        assert decided(PEAKED, narrow).all()
    assert decided(CLIFF, Draw()).all(), "no outside token comes near"
    assert decided(CLIFF, Draw(top_p=0.95)).all()
    for wide in (Draw(), Draw(top_p=0.95), Draw(top_k=1000)):
        assert not decided(NORMAL, wide).any()


@pytest.mark.parametrize("how", [Draw(top_k=1), Draw(top_k=5), Draw(top_p=0.5), Draw(min_p=1.0), Draw()])
def test_equals_that_go_on_outside_are_drawn_too(how: Draw) -> None:
    zeros = np.zeros((ROWS, VOCAB), np.float32)
    rows = Draw(how.temperature, how.top_p, how.top_k, how.min_p, positions=np.arange(ROWS))
    tokens = np.asarray(_fast(zeros, rows.at(ROWS), True))
    np.testing.assert_array_equal(tokens, _full(zeros, rows.at(ROWS), True))
    assert len(set(tokens.tolist())) > CANDIDATES // 4


@pytest.mark.parametrize("finite", [1, 3, CANDIDATES, 1000])
@pytest.mark.parametrize("how", [Draw(), Draw(top_k=40), Draw(top_p=0.999999), Draw(temperature=9.0, min_p=1e-9)])
def test_impossible_tokens_are_never_drawn(how: Draw, finite: int) -> None:
    logits = np.where(np.arange(VOCAB) < VOCAB - finite, -np.inf, NORMAL).astype(np.float32)
    assert draw(logits, how).tokens.min() >= VOCAB - finite


def test_greedy_rows_take_the_first_of_the_best_among_drawn_ones() -> None:
    logits = NORMAL.copy()
    logits[:, [77, 4000]] = 50
    temperature = np.where(np.arange(ROWS) % 2, 0.0, 1.0)
    assert (draw(logits, Draw(temperature=temperature)).tokens[1::2] == 77).all()


def test_a_fallback_for_a_neighbour_changes_no_row() -> None:
    how = Draw(temperature=0.8, top_p=0.9, positions=np.arange(ROWS))
    alone = draw(PEAKED, how).tokens
    beside = PEAKED.copy()
    beside[::2] = NORMAL[::2]
    np.testing.assert_array_equal(draw(beside, how).tokens[1::2], alone[1::2])


def test_noise_is_that_of_the_token_and_bounded() -> None:
    keys = jnp.asarray(np.random.RandomState(3).randint(0, 1 << 32, (4, 2), np.uint32))
    every = np.asarray(gumbel(keys, jnp.arange(1 << 16)[None]))
    some = np.random.RandomState(4).permutation(1 << 16)[:999]
    np.testing.assert_array_equal(gumbel(keys, jnp.asarray(some)[None]), every[:, some])
    assert np.isfinite(every).all()
    assert np.float32(-np.log(-np.log(1 - 2.0**-24))) < LARGEST_NOISE
    assert np.abs(every.mean(axis=1) - np.euler_gamma).max() < 0.02
    assert np.abs(every.std(axis=1) - np.pi / np.sqrt(6)).max() < 0.02
    assert np.abs(np.corrcoef(every) - np.eye(4)).max() < 0.02


def test_draws_from_a_large_vocabulary_follow_the_softmax() -> None:
    rows, share = 16_384, np.array([0.4, 0.25, 0.15, 0.1])
    logits = np.full(4096, np.log(0.1 / 4092), np.float32)
    logits[[5, 900, 2047, 4095]] = np.log(share)
    tokens = np.concatenate(
        [
            draw(np.tile(logits, (512, 1)), Draw(seeds=29, positions=np.arange(start, start + 512))).tokens
            for start in range(0, rows, 512)
        ]
    )
    seen = np.array([(tokens == token).sum() for token in (5, 900, 2047, 4095)])
    seen, expected = np.append(seen, rows - seen.sum()), rows * np.append(share, 0.1)
    assert ((seen - expected) ** 2 / expected).sum() < 33.4, "exceeded once in a million times (4 degrees of freedom)"
