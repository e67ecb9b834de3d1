"""Chunks of several sequences as the arrays of one prefill step."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from halfmoon.runner.batch import Chunk
from halfmoon.runner.buckets import ROWS_PER_PREFILL, PrefillBucket


def pack_chunks(
    chunks: Sequence[Chunk], bucket: PrefillBucket, table_width: int
) -> tuple[tuple[NDArray[np.int32], ...], dict[int, int], list[int]]:
    """Inputs of the step; the logits row of each chunk that wants one; the place of each chunk's first token."""
    tokens, starts = np.zeros(bucket.tokens, np.int32), np.zeros(bucket.runs, np.int32)
    tables, last = np.zeros((bucket.runs, table_width), np.int32), np.zeros(ROWS_PER_PREFILL, np.int32)
    rows: dict[int, int] = {}
    offsets: list[int] = []
    run = 0
    for index, chunk in enumerate(chunks):
        length, offset = len(chunk.token_ids), run * bucket.run
        offsets.append(offset)
        tokens[offset : offset + length] = chunk.token_ids
        count = -(-length // bucket.run)
        starts[run : run + count] = chunk.start + np.arange(count) * bucket.run
        tables[run : run + count, : len(chunk.pages)] = chunk.pages
        run += count
        if chunk.wants_logits:
            rows[index] = len(rows)
            last[rows[index]] = offset + length - 1
    return (tokens, starts, tables, last), rows, offsets
