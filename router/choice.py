"""The text of one choice: tokens in, deltas out."""

from collections.abc import Collection
from dataclasses import dataclass

from halfmoon.errors import InternalError
from halfmoon.text import IncrementalDetokenizer, StopMatcher, Tokenizer
from halfmoon.v1 import common_pb2
from halfmoon.v1 import router_pb2 as pb


@dataclass(frozen=True, slots=True)
class TextRules:
    """How tokens become text, the same for all choices of a request."""

    tokenizer: Tokenizer
    end_token_ids: Collection[int]
    stop_token_ids: Collection[int]
    ignore_eos: bool
    include_stop: bool
    keep_special: bool
    min_tokens: int


class ChoiceOutput:
    """Follows one choice: takes each position once, cuts at stop strings, knows how it ended.

    `matcher` is None where there are no stop strings.
    """

    def __init__(
        self, index: int, rules: TextRules, detokenizer: IncrementalDetokenizer, matcher: StopMatcher | None
    ) -> None:
        self.index = index
        self.tokens = 0
        self.finish: "common_pb2.FinishReason.ValueType" = common_pb2.FINISH_REASON_UNSPECIFIED
        self.cut = False
        self._rules = rules
        self._detokenizer = detokenizer
        self._matcher = matcher
        self._delta = pb.ChoiceDelta(index=index)

    @property
    def ended(self) -> bool:
        """Whether nothing follows."""
        return self.finish != common_pb2.FINISH_REASON_UNSPECIFIED

    def push(self, token: common_pb2.OutputToken) -> None:
        """Takes a token; one that was taken already, or comes after the end, is passed over.

        Raises InternalError when a position is missing.
        """
        if self.ended or token.position < self.tokens:
            return
        if token.position > self.tokens:
            raise InternalError(f"choice {self.index} lacks position {self.tokens}: {token.position} came")
        self.tokens += 1
        self._delta.token_ids.append(token.token_id)
        if token.HasField("logprobs"):
            fill_token_bytes(token.logprobs, self._rules.tokenizer)
            self._delta.logprobs.append(token.logprobs)
        self._add_text(self._text_of(token))
        if not self.ended and token.finish_reason:
            self._end(token)

    def end_without_tokens(self) -> None:
        """Ends a choice of which no tokens were asked for."""
        self.finish = self._delta.finish_reason = common_pb2.FINISH_REASON_LENGTH

    def take(self) -> pb.ChoiceDelta | None:
        """What is new since the last time; None when nothing is."""
        delta = self._delta
        if not delta.token_ids and not delta.finish_reason:
            return None
        self._delta = pb.ChoiceDelta(index=self.index)
        return delta

    def _text_of(self, token: common_pb2.OutputToken) -> str:
        text = self._detokenizer.push([token.token_id]) if self._shown(token) else ""
        return text + self._detokenizer.flush() if token.finish_reason else text

    def _shown(self, token: common_pb2.OutputToken) -> bool:
        """Whether a token shows in the text; a token that ends the choice does so only when asked for."""
        if token.finish_reason != common_pb2.FINISH_REASON_STOP:
            return True
        return self._rules.include_stop if self._is_stop_token(token.token_id) else self._rules.keep_special

    def _is_stop_token(self, token_id: int) -> bool:
        """Whether the request's own stop token, rather than the model's end token, ended the choice."""
        rules = self._rules
        return token_id in rules.stop_token_ids and (rules.ignore_eos or token_id not in rules.end_token_ids)

    def _add_text(self, text: str) -> None:
        if self._matcher is None or self.tokens <= self._rules.min_tokens:
            self._delta.text += text
            return
        result = self._matcher.push(text)
        self._delta.text += result.text
        if result.matched is not None:
            self.cut = True
            self.finish = self._delta.finish_reason = common_pb2.FINISH_REASON_STOP
            self._delta.stop_string = result.matched

    def _end(self, token: common_pb2.OutputToken) -> None:
        if self._matcher is not None:
            self._delta.text += self._matcher.flush()
        self.finish = self._delta.finish_reason = token.finish_reason
        if token.finish_reason == common_pb2.FINISH_REASON_STOP and self._is_stop_token(token.token_id):
            self._delta.stop_token_id = token.token_id


def fill_token_bytes(entry: common_pb2.TokenLogprobs, tokenizer: Tokenizer) -> None:
    """Says what each candidate alone decodes to."""
    if entry.HasField("chosen"):
        entry.chosen.token_bytes = tokenizer.token_bytes(entry.chosen.token_id)
    for candidate in entry.top:
        candidate.token_bytes = tokenizer.token_bytes(candidate.token_id)
