"""Chunks of several sequences become the arrays of one step."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.runner.batch import Chunk
from halfmoon.runner.buckets import ROWS_PER_PREFILL, PrefillBucket
from halfmoon.runner.packing import pack_chunks

BUCKET, PAGE_SIZE, WIDTH = PrefillBucket(128, 8), 16, 10


@st.composite
def some_chunks(draw: st.DrawFn) -> list[Chunk]:
    """Chunks that fit the bucket together; tokens and pages are from 1, so that 0 is padding."""
    chunks: list[Chunk] = []
    free = BUCKET.runs
    while free and draw(st.booleans()):
        length = draw(st.integers(1, free * BUCKET.run))
        start = BUCKET.run * draw(st.integers(0, 3))
        pages = draw(st.lists(st.integers(1, 99), min_size=WIDTH, max_size=WIDTH))
        tokens = draw(st.lists(st.integers(1, 999), min_size=length, max_size=length))
        wants = sum(chunk.wants_logits for chunk in chunks) < ROWS_PER_PREFILL and draw(st.booleans())
        chunks.append(Chunk(tokens, start, pages[: -(-(start + length) // PAGE_SIZE)], wants))
        free -= -(-length // BUCKET.run)
    return chunks


@given(some_chunks())
def test_every_token_has_its_position_and_page(chunks: list[Chunk]) -> None:
    (tokens, starts, tables, last), rows, offsets = pack_chunks(chunks, BUCKET, WIDTH)
    used = set()
    for index, chunk in enumerate(chunks):
        for number, token in enumerate(chunk.token_ids):
            place, position = offsets[index] + number, chunk.start + number
            run = place // BUCKET.run
            assert tokens[place] == token
            assert starts[run] + place % BUCKET.run == position
            assert tables[run, position // PAGE_SIZE] == chunk.pages[position // PAGE_SIZE]
            used.add(run)
        assert (index in rows) == chunk.wants_logits
        if chunk.wants_logits:
            assert last[rows[index]] == offsets[index] + len(chunk.token_ids) - 1
    assert sorted(rows.values()) == list(range(len(rows)))
    padding = [run for run in range(BUCKET.runs) if run not in used]
    assert not tables[padding].any(), "padding is written to the scratch page"
    assert not starts[padding].any()


def test_no_run_belongs_to_two_chunks() -> None:
    first, second = Chunk([1], 0, [5], False), Chunk([2, 3], 16, [6, 7], True)
    (tokens, starts, tables, last), rows, offsets = pack_chunks([first, second], PrefillBucket(32, 16), 2)
    np.testing.assert_array_equal(tokens, [1] + 15 * [0] + [2, 3] + 14 * [0])
    np.testing.assert_array_equal(starts, [0, 16])
    np.testing.assert_array_equal(tables, [[5, 0], [6, 7]])
    assert (rows, offsets, last[0]) == ({1: 0}, [0, 16], 17)
