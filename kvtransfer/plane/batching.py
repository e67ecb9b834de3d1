"""How many blocks of a pull one request asks for."""

_MOST_BYTES = 8 << 20
"""More in one batch gains little, and delays the first block."""

_MOST_BLOCKS = 64
_LEAST_BYTES = 4 << 20
"""Less in one batch and what is said around it costs more than it gains to share evenly."""


def batch_blocks(waiting: int, streams: int, block_bytes: int) -> int:
    """At least 1: an even share of the `waiting` blocks for each of the streams, within the bounds of a batch."""
    most = min(_MOST_BLOCKS, _MOST_BYTES // block_bytes)
    least = -(-_LEAST_BYTES // block_bytes)
    share = -(-waiting // streams)
    return max(1, min(most, max(least, share)))
