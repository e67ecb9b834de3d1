"""The device side of an engine: model, caches, and the compiled steps over them. Used by one thread."""

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from halfmoon.config import PageGeometry
from halfmoon.kernels.kv_pages import copy_page, gather_pages, scatter_pages
from halfmoon.kernels.sample import Sampled
from halfmoon.models.llama import Llama
from halfmoon.request import PositionLogprobs, SamplingParams
from halfmoon.runner.batch import Chunk, DecodeRow, Pages, SampledTokens, SampleRow
from halfmoon.runner.buckets import ROWS_PER_PREFILL, BucketTable, PrefillBucket
from halfmoon.runner.packing import pack_chunks
from halfmoon.runner.programs import Programs, shape_of
from halfmoon.runner.sampler import Sampler, to_host
from halfmoon.runner.steps import decode_step, empty_caches, prefill_step, prompt_logprobs_step

Progress = Callable[[int, int, str], None]
"""(programs compiled, programs in all, name of the next)."""

PROMPT_LOGPROBS_ROWS = 64
"""Positions whose log-probabilities one program computes: bounds the logits in memory."""


@dataclass(frozen=True, slots=True)
class RunnerConfig:
    """Sizes of a runner: `pages` counts usable pages, without the scratch page."""

    geometry: PageGeometry
    pages: int
    max_model_len: int
    buckets: BucketTable
    decodes: bool = True

    @property
    def table_width(self) -> int:
        """Entries of a page table on the device."""
        return self.geometry.pages_for(self.max_model_len)

    @property
    def slots(self) -> int:
        """Sampling slots: the scratch one, one a decode row, one a prompt that ends in a prefill step."""
        return 1 + self.buckets.max_batch + ROWS_PER_PREFILL


@dataclass(frozen=True, slots=True)
class PrefillResult:
    """Logits [ROWS_PER_PREFILL, vocab] on the device; `rows` maps a chunk's index to its row.

    `prompt_logprobs` maps a chunk's index to the log-probabilities of its targets.
    """

    logits: jax.Array
    rows: dict[int, int]
    prompt_logprobs: dict[int, list[PositionLogprobs]]

    def wait(self) -> None:
        """Returns when the step has been computed."""
        self.logits.block_until_ready()


class Runner:
    """Compiled steps. `compile_all` first; from then on nothing compiles."""

    def __init__(self, model: Llama, config: RunnerConfig) -> None:
        self.config = config
        self.vocab = model.config.vocab_size
        self._hidden, self._dtype = model.config.hidden, model.embed_tokens[...].dtype
        self._graph, self._state = nnx.split(model)
        self._caches = empty_caches(config.pages + 1, config.geometry)
        self._programs = Programs()
        self._sampler = Sampler(self.vocab, config.slots, config.max_model_len, config.buckets)

    def compile_all(self, progress: Progress | None = None) -> None:
        """Compiles every program of the bucket table, those of the role's own kind of step first."""
        steps = self._compile_steps()
        for done, (name, compile_one) in enumerate(steps):
            if progress is not None:
                progress(done, len(steps), name)
            compile_one()

    def texts(self) -> dict[str, str]:
        """The optimised HLO of the programs that hold the caches, by name."""
        return {str(key): text for key, text in self._programs.texts().items()}

    def prefill(self, chunks: Sequence[Chunk], bucket: PrefillBucket) -> PrefillResult:
        """Computes new positions of several sequences in one step."""
        inputs, rows, offsets = pack_chunks(chunks, bucket, self.config.table_width)
        self._caches, hidden, logits = self._programs["prefill", bucket](self._state, self._caches, *inputs)
        wanted = {index: chunk for index, chunk in enumerate(chunks) if chunk.targets}
        scored = {index: self._score(hidden, offsets[index], chunk.targets) for index, chunk in wanted.items()}
        return PrefillResult(logits, rows, scored)

    def time_prefill(self, bucket: PrefillBucket, context: int = 0) -> float:
        """Seconds that a full step takes after so many positions, a multiple of the run; writes the scratch page."""
        chunk = Chunk([0] * bucket.tokens, context, [], wants_logits=True)
        self.prefill([chunk], bucket).wait()
        begin = time.perf_counter()
        self.prefill([chunk], bucket).wait()
        return time.perf_counter() - begin

    def decode(self, rows: Sequence[DecodeRow], tokens: jax.Array | None = None) -> jax.Array:
        """One step of several sequences: logits [batch, vocab], the rows' first.

        `tokens` int32 [batch], as drawn for the same number of rows, take the place of the rows' own.
        """
        batch = self.config.buckets.decode_for(len(rows))
        known, positions = np.zeros(batch, np.int32), np.zeros(batch, np.int32)
        tables = np.zeros((batch, self.config.table_width), np.int32)
        for index, row in enumerate(rows):
            known[index], positions[index] = row.token_id, row.position
            tables[index, : len(row.pages)] = row.pages
        newest = known if tokens is None else tokens
        logits: jax.Array
        self._caches, logits = self._programs["decode", batch](self._state, self._caches, newest, positions, tables)
        return logits

    def draw(self, logits: jax.Array, rows: Sequence[SampleRow]) -> Sampled:
        """Dispatches the draw of one token for each row, at most the largest bucket, and counts them; waits for none.

        The rows' slots must differ, but for slot 0.
        """
        drawn = self._sampler.draw(logits, rows)
        self._sampler.count(rows, drawn.tokens)
        return drawn

    def sample(self, logits: jax.Array, rows: Sequence[SampleRow]) -> list[tuple[SampledTokens, int]]:
        """Draws a token for each row: (batch, place in it) for each, batches of at most the largest bucket.

        Rows that share a slot, the choices of one prompt, do not see each other's tokens: all are drawn, then counted.
        """
        width = self.config.buckets.max_batch
        parts = [rows[start : start + width] for start in range(0, len(rows), width)]
        drawn = [self._sampler.draw(logits, part) for part in parts]
        for part, batch in zip(parts, drawn, strict=True):
            self._sampler.count(part, batch.tokens)
        sampled = [to_host(batch) for batch in drawn]
        return [(batch, place) for part, batch in zip(parts, sampled, strict=True) for place in range(len(part))]

    def fill_slot(
        self, slot: int, params: SamplingParams, prompt: Sequence[int], output: Sequence[int], end_ids: Sequence[int]
    ) -> None:
        """Prepares a sampling slot, see `Sampler.fill_slot`."""
        self._sampler.fill_slot(slot, params, prompt, output, end_ids)

    def gather_pages(self, pages: Pages) -> list[tuple[jax.Array, int]]:
        """Copies pages out: arrays [n, layers, kv_heads, page_size, 2 * head_dim] with how many of the n count."""
        moved: list[tuple[jax.Array, int]] = []
        for part in self._parts(pages):
            padded = self._padded(part)
            moved.append((self._programs["gather", len(padded)](self._caches, padded), len(part)))
        return moved

    def scatter_pages(self, pages: Pages, blocks: Sequence[NDArray[np.generic]]) -> None:
        """Copies blocks [layers, kv_heads, page_size, 2 * head_dim] into pages; the blocks are free on return."""
        start = 0
        for part in self._parts(pages):
            padded = self._padded(part)
            stacked = np.zeros((len(padded), *self.config.geometry.shape), jnp.dtype(self.config.geometry.dtype))
            for place in range(len(part)):
                stacked[place] = blocks[start + place]
            self._caches = self._programs["scatter", len(padded)](self._caches, padded, stacked)
            start += len(part)

    def scatter_array(self, pages: Pages, blocks: jax.Array) -> None:
        """As `scatter_pages`, from an array on the device as `gather_pages` gives it; page 0 takes what is not wanted.

        There are as many `pages` as `blocks`, one of the bucket table's numbers.
        """
        self._caches = self._programs["scatter", len(pages)](self._caches, np.array(pages, np.int32), blocks)

    def copy_page(self, source: int, target: int) -> None:
        """Copies one page of all layers."""
        self._caches = self._programs["copy"](self._caches, np.int32(source), np.int32(target))

    def _parts(self, pages: Pages) -> list[Pages]:
        width = self.config.buckets.moved_pages[-1]
        return [pages[start : start + width] for start in range(0, len(pages), width)]

    def _padded(self, pages: Pages) -> NDArray[np.int32]:
        padded = np.zeros(self.config.buckets.moved_pages_for(len(pages)), np.int32)
        padded[: len(pages)] = pages
        return padded

    def _score(self, hidden: jax.Array, offset: int, targets: Sequence[int]) -> list[PositionLogprobs]:
        entries: list[PositionLogprobs] = []
        for start in range(0, len(targets), PROMPT_LOGPROBS_ROWS):
            part = targets[start : start + PROMPT_LOGPROBS_ROWS]
            places, padded = np.zeros(PROMPT_LOGPROBS_ROWS, np.int32), np.zeros(PROMPT_LOGPROBS_ROWS, np.int32)
            places[: len(part)] = np.arange(offset + start, offset + start + len(part))
            padded[: len(part)] = part
            scored = to_host(self._programs["prompt_logprobs", hidden.shape[1]](self._state, hidden, places, padded))
            rows = (scored.at(row, scored.top_ids.shape[1]) for row in range(len(part)))
            entries.extend(row for row in rows if row is not None)
        return entries

    def _compile_steps(self) -> list[tuple[str, Callable[[], None]]]:
        buckets = self.config.buckets
        decode = [(f"decode {batch}", functools.partial(self._compile_decode, batch)) for batch in buckets.decode]
        prefill = [
            (f"prefill {each.tokens}", functools.partial(self._compile_prefill, each)) for each in buckets.prefill
        ]
        moves = [(f"move {n} pages", functools.partial(self._compile_moves, n)) for n in buckets.moved_pages]
        sampling = self._sampler.compile_steps([ROWS_PER_PREFILL])
        # A decode worker takes what it shares with prefill last: started together, it finds that in the cache.
        return [*decode, *sampling, *moves, *prefill] if self.config.decodes else [*prefill, *sampling, *moves]

    def _compile_prefill(self, bucket: PrefillBucket) -> None:
        inputs, _, _ = pack_chunks([], bucket, self.config.table_width)
        step = functools.partial(prefill_step, self._graph)
        self._programs.compile(("prefill", bucket), step, self._state, self._caches, *inputs, donate=(1,))
        hidden = shape_of((self._hidden, bucket.tokens), self._dtype)
        rows = np.zeros(PROMPT_LOGPROBS_ROWS, np.int32)
        scoring = functools.partial(prompt_logprobs_step, self._graph)
        self._programs.compile(("prompt_logprobs", bucket.tokens), scoring, self._state, hidden, rows, rows)

    def _compile_decode(self, batch: int) -> None:
        rows, tables = np.zeros(batch, np.int32), np.zeros((batch, self.config.table_width), np.int32)
        step = functools.partial(decode_step, self._graph)
        self._programs.compile(("decode", batch), step, self._state, self._caches, rows, rows, tables, donate=(1,))

    def _compile_moves(self, pages: int) -> None:
        ids, one = np.zeros(pages, np.int32), np.int32(0)
        blocks = shape_of((pages, *self.config.geometry.shape), jnp.dtype(self.config.geometry.dtype))
        self._programs.compile(("gather", pages), gather_pages, self._caches, ids)
        self._programs.compile(("scatter", pages), scatter_pages, self._caches, ids, blocks, donate=(0,))
        if pages == self.config.buckets.moved_pages[0]:
            self._programs.compile("copy", copy_page, self._caches, one, one, donate=(0,))
