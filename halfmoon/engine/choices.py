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


def ends_by_length(sequence: Sequence, max_model_len: int) -> bool:
    """Whether the next token is the last, whatever it is."""
    return sequence.written + 1 >= sequence.params.max_tokens or len(sequence.tokens) + 1 >= max_model_len


def _finish_reason(sequence: Sequence, token_id: int, max_model_len: int) -> FinishReason | None:
    if token_id in sequence.job.end_ids and sequence.written + 1 > sequence.params.min_tokens:
        return FinishReason.STOP
    return FinishReason.LENGTH if ends_by_length(sequence, max_model_len) else None
