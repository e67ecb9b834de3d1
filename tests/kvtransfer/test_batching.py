"""How many blocks one request asks for."""

import pytest

from kvtransfer.plane.batching import batch_blocks

KIB = 1024
MIB = 1024 * KIB


@pytest.mark.parametrize(
    ("waiting", "streams", "block_bytes", "expected"),
    [
        (64, 2, 180 * KIB, 32),
        (64, 1, 100 * KIB, 64),
        (1024, 2, 180 * KIB, 45),
        (1024, 2, 16 * KIB, 64),
        (8, 2, 2 * MIB, 4),
        (30, 2, 180 * KIB, 23),
        (1, 2, 180 * KIB, 23),
        (10, 2, 100 * MIB, 1),
        (0, 2, 64 * KIB, 64),
    ],
)
def test_streams_share_evenly_within_the_bounds_of_a_batch(
    waiting: int, streams: int, block_bytes: int, expected: int
) -> None:
    assert batch_blocks(waiting, streams, block_bytes) == expected
