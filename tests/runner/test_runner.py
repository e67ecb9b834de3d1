"""The runner's steps over real caches: nothing compiles once it is compiled, and pages move unchanged."""

from pathlib import Path

import numpy as np
import pytest

from halfmoon.request import SamplingParams
from halfmoon.runner.batch import Chunk, DecodeRow, SampleRow
from halfmoon.runner.buckets import ROWS_PER_PREFILL
from halfmoon.runner.programs import CompileCounter
from halfmoon.runner.runner import PROMPT_LOGPROBS_ROWS, Runner
from tests.kernels.sampling import log_softmax
from tests.models.families import VOCABULARY
from tests.runner.small import BUCKETS, PAGE_SIZE, PAGES, make_runner

PARAMS = SamplingParams(8, temperature=0.9, top_p=0.9, frequency_penalty=0.5, logprobs=3)


def tokens(length: int, seed: int = 0) -> list[int]:
    """Random token ids."""
    return [int(each) for each in np.random.RandomState(seed).randint(0, VOCABULARY, length)]


@pytest.fixture(scope="module")
def counter() -> CompileCounter:
    return CompileCounter()


def test_once_compiled_no_bucket_compiles_anything(runner: Runner, counter: CompileCounter) -> None:
    compilations = counter.since_now()
    runner.fill_slot(1, PARAMS, tokens(9), tokens(3), [2])
    for bucket in BUCKETS.prefill:
        ids = tokens(bucket.tokens)
        result = runner.prefill([Chunk(ids, 0, list(range(1, 9)), True, ids[1:])], bucket)
        for count in (1, 2, ROWS_PER_PREFILL):
            runner.sample(result.logits, [SampleRow(0, PARAMS, choice, 0, slot=1) for choice in range(count)])
    for rows in range(1, BUCKETS.max_batch + 1):
        logits = runner.decode([DecodeRow(5, 20, [page, page + 1]) for page in range(1, rows + 1)])
        runner.sample(logits, [SampleRow(row, PARAMS, 0, 1, slot=row % 2) for row in range(rows)])
    for count in (1, 2, 4, 7):
        pages = list(range(10, 10 + count))
        moved = runner.gather_pages(pages)
        blocks = [block for array, valid in moved for block in np.asarray(array)[:valid]]
        runner.scatter_pages(pages, blocks)
    runner.copy_page(1, 2)
    assert compilations() == 0


def test_pages_that_were_scattered_are_gathered_again_and_others_keep_theirs(runner: Runner) -> None:
    every = list(range(1, PAGES + 1))
    random = np.random.RandomState(1)
    blocks = [random.standard_normal(runner.config.geometry.shape).astype(np.float32) for _ in every]
    runner.scatter_pages(every, blocks)
    runner.scatter_pages([7, 3, 30], [blocks[0], blocks[1], blocks[2]])
    runner.copy_page(7, 9)
    expected = dict(zip(every, blocks, strict=True)) | {7: blocks[0], 3: blocks[1], 30: blocks[2], 9: blocks[0]}
    moved = runner.gather_pages(every)
    gathered = [block for array, valid in moved for block in np.asarray(array)[:valid]]
    for page, block in zip(every, gathered, strict=True):
        np.testing.assert_array_equal(block, expected[page])


def test_the_caller_may_reuse_blocks_and_keeps_what_it_gathered(runner: Runner) -> None:
    block = np.full(runner.config.geometry.shape, 3.0, np.float32)
    runner.scatter_pages([5], [block])
    block[:] = -1.0
    ((array, _),) = runner.gather_pages([5])
    runner.scatter_pages([5], [block])
    assert (np.asarray(array)[0] == 3.0).all()


def test_steps_write_only_to_their_sequences_pages(runner: Runner) -> None:
    mine, others = [4, 2], [page for page in range(1, PAGES + 1) if page not in (4, 2)]
    marks = [np.full(runner.config.geometry.shape, page, np.float32) for page in others]
    runner.scatter_pages(others, marks)
    runner.prefill([Chunk(tokens(9), 0, mine, True)], BUCKETS.prefill[0])
    runner.decode([DecodeRow(5, 9, mine)])
    runner.decode([DecodeRow(5, PAGE_SIZE, mine)])
    moved = runner.gather_pages(others)
    gathered = [block for array, valid in moved for block in np.asarray(array)[:valid]]
    for mark, block in zip(marks, gathered, strict=True):
        np.testing.assert_array_equal(block, mark)


def test_moved_pages_serve_a_decode_step_as_the_computed_ones_do(runner: Runner) -> None:
    ids = tokens(20, 3)
    runner.prefill([Chunk(ids, 0, [1, 2], True)], BUCKETS.prefill[1])
    there = np.asarray(runner.decode([DecodeRow(7, 20, [1, 2])]))[0]
    moved = runner.gather_pages([1, 2])
    blocks = [block for array, valid in moved for block in np.asarray(array)[:valid]]
    runner.scatter_pages([20, 11], blocks)
    np.testing.assert_array_equal(np.asarray(runner.decode([DecodeRow(7, 20, [20, 11])]))[0], there)


def test_prompt_log_probabilities_are_those_of_the_targets(runner: Runner) -> None:
    """Two chunks in one step, against the logits of each prefix; more targets than one program scores at once."""
    count, pages = PROMPT_LOGPROBS_ROWS + 9, [1, 2, 3, 4, 5]
    ids = tokens(count + 1, 4)
    chunks = [Chunk(ids[:9], 0, [8], False), Chunk(ids[:count], 0, pages, True, ids[1:])]
    result = runner.prefill(chunks, BUCKETS.prefill[1])
    assert list(result.prompt_logprobs) == [1]
    entries = result.prompt_logprobs[1]
    assert len(entries) == count
    for position in (0, 15, 16, PROMPT_LOGPROBS_ROWS - 1, PROMPT_LOGPROBS_ROWS, count - 1):
        alone = runner.prefill([Chunk(ids[: position + 1], 0, pages, True)], BUCKETS.prefill[1])
        expected = log_softmax(np.asarray(alone.logits)[0])
        chosen = entries[position].chosen
        assert chosen is not None
        assert chosen.token_id == ids[position + 1]
        assert chosen.logprob == pytest.approx(expected[ids[position + 1]], abs=1e-4)
        assert entries[position].top[0].logprob == pytest.approx(expected.max(), abs=1e-4)
        assert len(entries[position].top) == 20


def test_more_rows_than_the_largest_batch_are_sampled_in_parts(runner: Runner) -> None:
    result = runner.prefill([Chunk(tokens(9), 0, [1], True)], BUCKETS.prefill[0])
    rows = [SampleRow(0, SamplingParams(8, seed=4, temperature=2.0), choice, 0) for choice in range(7)]
    drawn = [int(batch.tokens[place]) for batch, place in runner.sample(result.logits, rows)]
    alone = [int(batch.tokens[place]) for row in rows for batch, place in runner.sample(result.logits, [row])]
    assert drawn == alone
    assert len(set(drawn)) > 2


def test_choices_that_share_a_slot_do_not_see_each_others_tokens(runner: Runner) -> None:
    """More choices than the largest batch, and a penalty that forbids every token once it is counted."""
    params = SamplingParams(8, temperature=0.0, presence_penalty=1000.0, n=7)
    result = runner.prefill([Chunk(tokens(9), 0, [1], True)], BUCKETS.prefill[0])
    runner.fill_slot(1, params, tokens(9), [], [])
    rows = [SampleRow(0, params, choice, 0, slot=1) for choice in range(7)]
    first = {int(batch.tokens[place]) for batch, place in runner.sample(result.logits, rows)}
    again = {int(batch.tokens[place]) for batch, place in runner.sample(result.logits, rows)}
    assert len(first) == len(again) == 1
    assert first != again, "once all were drawn, their tokens count"


class StopHereError(Exception):
    """Ends a compilation from its progress callback."""


@pytest.mark.parametrize(("decodes", "first", "programs"), [(True, "decode 1", 9), (False, "prefill 16", 7)])
def test_a_role_compiles_its_own_kind_of_step_first(decodes: bool, first: str, programs: int, tmp_path: Path) -> None:
    """A worker that only prefills has no decode steps."""
    runner = make_runner(tmp_path, compiled=False, decodes=decodes)
    seen: list[tuple[int, int, str]] = []

    def progress(done: int, total: int, name: str) -> None:
        seen.append((done, total, name))
        raise StopHereError

    with pytest.raises(StopHereError):
        runner.compile_all(progress)
    assert seen == [(0, programs, first)]
