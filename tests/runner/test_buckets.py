"""Work goes to the smallest bucket that holds it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.errors import InternalError
from halfmoon.runner.buckets import BucketTable, PrefillBucket

TABLES = st.builds(
    BucketTable.default,
    page_size=st.sampled_from([8, 16, 32, 64, 128, 256]),
    max_batch=st.integers(1, 100),
    max_chunk=st.integers(1, 600),
)


def holds(bucket: PrefillBucket, lengths: list[int]) -> bool:
    """Whether chunks of these lengths, each in whole runs of its own, fit."""
    return sum((length + bucket.run - 1) // bucket.run for length in lengths) * bucket.run <= bucket.tokens


@given(TABLES, st.lists(st.integers(1, 300), min_size=1, max_size=6))
def test_the_first_prefill_bucket_that_holds_the_chunks_is_taken(table: BucketTable, lengths: list[int]) -> None:
    fitting = [bucket for bucket in table.prefill if holds(bucket, lengths)]
    assert table.prefill_for(lengths) == (fitting[0] if fitting else None)


@given(TABLES)
def test_the_largest_prefill_bucket_holds_one_chunk_of_its_size(table: BucketTable) -> None:
    bucket = table.prefill_for([table.max_chunk])
    assert bucket is not None
    assert bucket.tokens == table.max_chunk


@given(TABLES, st.integers(1, 100))
def test_the_smallest_decode_batch_that_holds_the_rows_is_taken(table: BucketTable, rows: int) -> None:
    if rows > table.max_batch:
        with pytest.raises(InternalError, match=f"no bucket for {rows}"):
            table.decode_for(rows)
        return
    batch = table.decode_for(rows)
    assert batch >= rows
    assert not any(rows <= smaller < batch for smaller in table.decode)


@given(
    st.sampled_from([8, 16, 32, 64, 128, 256]),
    st.integers(1, 100),
    st.integers(1, 600),
)
def test_a_default_table_is_sound(page_size: int, max_batch: int, max_chunk: int) -> None:
    table = BucketTable.default(page_size=page_size, max_batch=max_batch, max_chunk=max_chunk)
    sizes = [bucket.tokens for bucket in table.prefill]
    assert sizes == sorted(set(sizes))
    assert max_chunk <= table.max_chunk < max_chunk + min(64, page_size)
    assert table.max_batch == max_batch
    assert list(table.decode) == sorted(set(table.decode))
    for bucket in table.prefill:
        assert bucket.tokens == bucket.runs * bucket.run
        assert page_size % bucket.run == 0, "a run must not cross a page"


def test_short_prompts_waste_little() -> None:
    table = BucketTable.default(page_size=64)
    assert table.prefill_for([5]) == PrefillBucket(16, 16)
    assert table.prefill_for([5, 5, 5]) == PrefillBucket(64, 16)
    assert table.prefill_for([100]) == PrefillBucket(128, 16)
    assert table.prefill_for([200]) == PrefillBucket(256, 64)
    assert table.prefill_for([257]) is None


@pytest.mark.parametrize(("pages", "size"), [(1, 1), (2, 4), (4, 4), (9, 4)])
def test_pages_are_moved_in_the_smallest_group_that_holds_them(pages: int, size: int) -> None:
    assert BucketTable((PrefillBucket(16, 16),), (1,), (1, 4)).moved_pages_for(pages) == size
