"""Prefill steps: chunks of prompts are computed, and the tokens after complete prompts drawn."""

from collections.abc import Callable

from halfmoon.engine.choices import output_token, sample_rows
from halfmoon.engine.scheduler import PrefillPlan, Scheduler
from halfmoon.engine.sequence import Sequence
from halfmoon.engine.slots import SamplingSlots
from halfmoon.request import OutputToken
from halfmoon.runner.batch import Chunk, SampleRow
from halfmoon.runner.runner import PrefillResult, Runner


class Prefiller:
    """Runs planned prefill steps to their end, and tells the scheduler's pace how long they took."""

    def __init__(self, runner: Runner, scheduler: Scheduler, slots: SamplingSlots, clock: Callable[[], float]) -> None:
        self._runner = runner
        self._scheduler = scheduler
        self._slots = slots
        self._clock = clock

    def compute(self, plan: PrefillPlan) -> PrefillResult:
        """The planned step; its chunks have the plan's indices."""
        chunks = [_chunk(each.sequence, each.length) for each in plan.chunks]
        begin, context = self._clock(), max(chunk.start for chunk in chunks)
        result = self._runner.prefill(chunks, plan.bucket)
        result.wait()
        self._scheduler.pace.observe(plan.bucket, context, self._clock() - begin)
        return result

    def draw(self, complete: dict[int, Sequence], result: PrefillResult) -> dict[Sequence, list[OutputToken]]:
        """The tokens that follow the sequences, by chunk index, that a step completed; none where none are wanted."""
        rows: list[SampleRow] = []
        owners: list[Sequence] = []
        for index, sequence in complete.items():
            if index in result.rows:
                self._slots.take(sequence)
                drawn = sample_rows(sequence, result.rows[index])
                rows.extend(drawn)
                owners.extend([sequence] * len(drawn))
        tokens: dict[Sequence, list[OutputToken]] = {sequence: [] for sequence in complete.values()}
        sampled = self._runner.sample(result.logits, rows)
        for row, owner, (batch, place) in zip(rows, owners, sampled, strict=True):
            tokens[owner].append(output_token(owner, row, batch, place, self._runner.config.max_model_len))
        for sequence in complete.values():
            self._slots.give_back(sequence)
        return tokens


def _chunk(sequence: Sequence, length: int) -> Chunk:
    start, job = sequence.computed, sequence.job
    ends = length == sequence.uncomputed
    targets = job.request.prompt[start + 1 : start + length + 1] if job.wants_prompt_logprobs else ()
    wants_logits = ends and job.request.params.max_tokens > 0
    return Chunk(sequence.tokens[start : start + length], start, sequence.pages, wants_logits, targets)
