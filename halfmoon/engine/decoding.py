"""Decode steps, one ahead of the host: the next is dispatched before the tokens of the last one are read.

A step that runs ahead takes its tokens from the device. A sequence that turns out to have ended computes one row for
nothing, which is dropped when it is read; the page that this row writes stays in use until then.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import jax

from halfmoon.engine.choices import ends_by_length
from halfmoon.engine.scheduler import Scheduler
from halfmoon.engine.sequence import Sequence
from halfmoon.engine.slots import SamplingSlots
from halfmoon.kernels.sample import Sampled
from halfmoon.runner.batch import DecodeRow, SampledTokens, SampleRow
from halfmoon.runner.runner import Runner
from halfmoon.runner.sampler import to_host


@dataclass(frozen=True, slots=True)
class Drawn:
    """The next token of a sequence: what was drawn for `row` is at `place` of `batch`."""

    sequence: Sequence
    row: SampleRow
    batch: SampledTokens
    place: int


@dataclass(frozen=True, slots=True)
class _Step:
    """A dispatched step: a row for each sequence, what is being drawn, and the page that each row writes."""

    sequences: list[Sequence]
    rows: list[SampleRow]
    drawn: Sampled
    pages: list[int]


class DecodePipeline:
    """At most one step is under way between calls, and it holds a reference to each page that it writes."""

    def __init__(self, runner: Runner, scheduler: Scheduler, slots: SamplingSlots) -> None:
        self._runner = runner
        self._scheduler = scheduler
        self._slots = slots
        self._under_way: _Step | None = None

    @property
    def busy(self) -> bool:
        """Whether a step is under way."""
        return self._under_way is not None

    @property
    def pages(self) -> set[int]:
        """Pages that the step under way keeps in use."""
        return set(self._under_way.pages) if self._under_way else set()

    def start(self, batch: list[Sequence]) -> None:
        """Dispatches a step of sequences whose tokens the host knows; none may be under way."""
        for sequence in batch:
            self._slots.take(sequence, spared=batch)
        self._under_way = self._dispatch(batch)

    def run_ahead(self) -> list[Drawn] | None:
        """Dispatches the step that follows the one under way, then reads that one.

        None, and nothing done, where the next step cannot be that of the same sequences: finish this one first.
        """
        last = self._under_way
        if last is None or not self._repeats(last.sequences):
            return None
        self._under_way = self._dispatch(last.sequences, last.drawn.tokens)
        return self._read(last)

    def finish(self) -> list[Drawn]:
        """Reads the step under way, if there is one."""
        last, self._under_way = self._under_way, None
        return self._read(last) if last else []

    def _repeats(self, batch: list[Sequence]) -> bool:
        """Whether the next step is one of the same sequences, as far as can be said without their newest tokens."""
        if not self._scheduler.steady or self._scheduler.batch != batch:
            return False
        limit = self._runner.config.max_model_len
        return not any(ends_by_length(each, limit) for each in batch) and self._scheduler.reserve_next(batch)

    def _dispatch(self, batch: list[Sequence], tokens: jax.Array | None = None) -> _Step:
        """`tokens` are the newest of each sequence where the host does not know them yet."""
        unread = 0 if tokens is None else 1
        inputs = [DecodeRow(each.tokens[-1], each.computed + unread, each.pages) for each in batch]
        rows = [
            SampleRow(index, each.params, each.choice, each.written + unread, each.slot)
            for index, each in enumerate(batch)
        ]
        page_size = self._runner.config.geometry.page_size
        pages = [row.pages[row.position // page_size] for row in inputs]
        self._scheduler.pool.share(pages)
        return _Step(batch, rows, self._runner.draw(self._runner.decode(inputs, tokens), rows), pages)

    def _read(self, step: _Step) -> list[Drawn]:
        batch = to_host(step.drawn)
        self._scheduler.pool.release(step.pages)
        return list(self._alive(step, batch))

    def _alive(self, step: _Step, batch: SampledTokens) -> Iterator[Drawn]:
        running = set(self._scheduler.running)
        for place, (sequence, row) in enumerate(zip(step.sequences, step.rows, strict=True)):
            if sequence in running:
                yield Drawn(sequence, row, batch, place)
