"""Pages of an engine become host blocks."""

import numpy as np
from numpy.typing import NDArray

from kvtransfer.checksum import block_checksum


def fill_block(page: NDArray[np.generic], target: NDArray[np.uint8]) -> int:
    """Copies a page, contiguous in the wire layout, into a host block; returns the block's checksum."""
    target[:] = page.reshape(-1).view(np.uint8)
    return block_checksum(target)
