"""The checksum that travels with every block."""

import numpy as np
import xxhash
from numpy.typing import NDArray


def block_checksum(view: NDArray[np.uint8]) -> int:
    """xxh3-64 of contiguous bytes, as an unsigned 64-bit number. Finds corruption, not tampering; releases the GIL."""
    return xxhash.xxh3_64_intdigest(view.data)
