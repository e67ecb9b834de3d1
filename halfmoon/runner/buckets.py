"""The one table of shapes that a worker compiles. Plain Python."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from halfmoon.errors import InternalError

ROWS_PER_PREFILL = 8
"""Prompts that can end in one prefill step: the rows whose logits it computes."""


@dataclass(frozen=True, slots=True)
class PrefillBucket:
    """A step over `tokens` positions in runs of `run`; each run belongs to one sequence and one page."""

    tokens: int
    run: int

    @property
    def runs(self) -> int:
        """Number of runs."""
        return self.tokens // self.run


@dataclass(frozen=True, slots=True)
class BucketTable:
    """All shapes: prefill steps by rising size, decode batches, and numbers of pages moved at once."""

    prefill: tuple[PrefillBucket, ...]
    decode: tuple[int, ...]
    moved_pages: tuple[int, ...] = (1, 4)

    @classmethod
    def default(cls, *, page_size: int, max_batch: int = 32, max_chunk: int = 256) -> "BucketTable":
        """Short runs for few tokens, so that short prompts waste little; whole pages for long chunks.

        `page_size` is a power of two; `max_chunk` is rounded up to whole runs.
        """
        short, long = min(16, page_size), min(64, page_size)
        largest = PrefillBucket(-(-max_chunk // long) * long, long)
        prefill = [PrefillBucket(size, short) for size in (short, 4 * short, 8 * short) if size < largest.tokens]
        decode = [2**power for power in range(max_batch.bit_length()) if 2**power < max_batch]
        return cls((*prefill, largest), (*decode, max_batch))

    @property
    def max_chunk(self) -> int:
        """Most positions of one prefill step."""
        return self.prefill[-1].tokens

    @property
    def max_batch(self) -> int:
        """Most sequences of one decode step."""
        return self.decode[-1]

    @property
    def long_run(self) -> int:
        """Run of the largest prefill bucket: chunks that do not end a prompt are multiples of it."""
        return self.prefill[-1].run

    def with_prefill(self, buckets: tuple[PrefillBucket, ...]) -> "BucketTable":
        """The same table with some of the prefill buckets alone."""
        return replace(self, prefill=buckets)

    def prefill_for(self, lengths: Sequence[int]) -> PrefillBucket | None:
        """The smallest bucket that holds chunks of these lengths; None when none does."""
        for bucket in self.prefill:
            if sum(-(-length // bucket.run) for length in lengths) <= bucket.runs:
                return bucket
        return None

    def decode_for(self, rows: int) -> int:
        """The smallest decode batch that holds `rows`."""
        return _at_least(self.decode, rows)

    def moved_pages_for(self, pages: int) -> int:
        """The smallest number of pages moved at once that holds `pages`; the largest when none does."""
        return next((size for size in self.moved_pages if size >= pages), self.moved_pages[-1])


def _at_least(sizes: Sequence[int], wanted: int) -> int:
    for size in sizes:
        if size >= wanted:
            return size
    raise InternalError(f"no bucket for {wanted}: the largest is {sizes[-1]}")
