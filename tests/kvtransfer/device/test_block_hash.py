"""The device's hash of a block depends on every bit and on every place."""

import jax.numpy as jnp
import numpy as np
import pytest

from kvtransfer.device.block_hash import hash_values

SHAPE = (3, 2, 4, 8, 6)


def random_bits(dtype: str) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    size = int(np.prod(SHAPE)) * jnp.dtype(dtype).itemsize
    return np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)


def hashes(bits: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], dtype: str) -> list[int]:
    return hash_values(jnp.asarray(bits.view(jnp.dtype(dtype)).reshape(SHAPE)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_every_bit_of_a_block_counts_and_those_of_others_do_not(dtype: str) -> None:
    bits = random_bits(dtype)
    original = hashes(bits, dtype)
    per_block = bits.size // SHAPE[0]
    for at in np.random.default_rng(1).integers(0, per_block, 24):
        for bit in (0, 3, 7):
            changed = bits.copy()
            changed[per_block + at] ^= 1 << bit
            after = hashes(changed, dtype)
            assert after[1] != original[1]
            assert (after[0], after[2]) == (original[0], original[2])


def test_values_that_change_places_are_noticed() -> None:
    values = np.arange(np.prod(SHAPE), dtype=np.float32).reshape(SHAPE)
    original = hash_values(jnp.asarray(values))
    for axis in (1, 2, 3, 4):
        assert hash_values(jnp.asarray(np.roll(values, 1, axis))) != original


def test_blocks_of_zeros_have_a_hash_like_any_other() -> None:
    first, second, _ = hash_values(jnp.zeros(SHAPE))
    assert first == second != 0
    negative = -jnp.zeros(SHAPE)
    assert hash_values(negative)[0] != first
