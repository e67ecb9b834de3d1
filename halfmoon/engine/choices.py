"""How the choices of a request are drawn, and when each is over."""

from collections.abc import Sequence as Items

from halfmoon.engine.sequence import Sequence
from halfmoon.request import FinishReason, OutputToken, SamplingParams
from halfmoon.runner.batch import SampledTokens, SampleRow


def end_ids_of(params: SamplingParams, model_end_ids: Items[int]) -> tuple[int, ...]:
    """Tokens that end a choice."""
    return params.stop_token_ids if params.ignore_eos else (*params.stop_token_ids, *model_end_ids)


def sample_rows(sequence: Sequence, logits_row: int) -> list[SampleRow]:
    """What to draw after a sequence was computed: every choice's first token, or the one choice's next."""
    choices = [sequence.choice] if sequence.written else range(sequence.params.n)
    return [SampleRow(logits_row, sequence.params, choice, sequence.written, sequence.slot) for choice in choices]


def output_token(
    sequence: Sequence, row: SampleRow, sampled: SampledTokens, place: int, max_model_len: int
) -> OutputToken:
    """The token drawn for `row`, which follows the sequence's tokens."""
    token_id = int(sampled.tokens[place])
    finish = _finish_reason(sequence, token_id, max_model_len)
    logprobs = sampled.at(place, sequence.params.logprobs)
    return OutputToken(row.choice, row.position, token_id, logprobs, finish)


def _finish_reason(sequence: Sequence, token_id: int, max_model_len: int) -> FinishReason | None:
    params, written = sequence.params, sequence.written + 1
    if token_id in sequence.job.end_ids and written > params.min_tokens:
        return FinishReason.STOP
    if written >= params.max_tokens or len(sequence.tokens) + 1 >= max_model_len:
        return FinishReason.LENGTH
    return None
