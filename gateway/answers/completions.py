"""Answers of `POST /v1/completions`."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gateway.answers.base import Answer, finish_reason, stop_reason
from gateway.answers.tokens import TextOffsets, candidates, finite, prompt_logprobs, token_text
from gateway.parsing.call import Call
from gateway.schema.common import PromptLogprobs, Usage
from gateway.schema.completions import Completion, CompletionChoice, CompletionLogprobs
from halfmoon.v1.common_pb2 import TokenLogprobs
from halfmoon.v1.router_pb2 import ChoiceDelta, PromptInfo


@dataclass(slots=True)
class _Progress:
    """One choice: where its text has got to, and what its first chunk has still to tell about the prompt."""

    offsets: TextOffsets = field(default_factory=TextOffsets)
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: PromptLogprobs | None = None


class CompletionAnswer(Answer[Completion]):
    """A choice's index is that of its prompt times n, plus its own."""

    id_prefix = "cmpl"

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._progress: defaultdict[int, _Progress] = defaultdict(_Progress)

    def usage_chunk(self, usage: Usage) -> Completion:
        """The last chunk of a stream that reports usage."""
        return self._completion([], usage)

    def join(self, chunks: Sequence[Completion], usage: Usage) -> Completion:
        """The whole answer."""
        parts: defaultdict[int, list[CompletionChoice]] = defaultdict(list)
        for chunk in chunks:
            for choice in chunk.choices:
                parts[choice.index].append(choice)
        return self._completion([_joined(parts[index]) for index in sorted(parts)], usage)

    def _open(self, prompt: int, info: PromptInfo) -> list[Completion]:
        view = self.call.view
        token_ids = list(info.token_ids) if view.token_ids else None
        logprobs = None
        if view.prompt_logprobs is not None:
            logprobs = prompt_logprobs(info.logprobs, view.prompt_logprobs, as_id=view.tokens_as_ids)
        indices = range(prompt * self.call.choices, (prompt + 1) * self.call.choices)
        for index in indices:
            self._progress[index] = _Progress(prompt_token_ids=token_ids, prompt_logprobs=logprobs)
        return [self._echo(index, info) for index in indices] if view.echo else []

    def _echo(self, index: int, info: PromptInfo) -> Completion:
        tokens = zip(info.token_ids, info.token_bytes, info.logprobs, strict=True)
        return self._chunk(index, info.text, self._logprobs(index, tokens))

    def _extend(self, prompt: int, delta: ChoiceDelta) -> list[Completion]:
        if self._tells_nothing(delta):
            return []
        index = prompt * self.call.choices + delta.index
        tokens = ((position.chosen.token_id, position.chosen.token_bytes, position) for position in delta.logprobs)
        chunk = self._chunk(index, delta.text, self._logprobs(index, tokens))
        choice = chunk.choices[0]
        choice.finish_reason = finish_reason(delta)
        choice.stop_reason = stop_reason(delta)
        choice.token_ids = list(delta.token_ids) if self.call.view.token_ids else None
        return [chunk]

    def _chunk(self, index: int, text: str, logprobs: CompletionLogprobs | None) -> Completion:
        progress = self._progress[index]
        choice = CompletionChoice(
            index=index,
            text=text,
            logprobs=logprobs,
            finish_reason=None,
            prompt_token_ids=progress.prompt_token_ids,
            prompt_logprobs=progress.prompt_logprobs,
        )
        progress.prompt_token_ids = progress.prompt_logprobs = None
        return self._completion([choice])

    def _logprobs(self, index: int, tokens: Iterable[tuple[int, bytes, TokenLogprobs]]) -> CompletionLogprobs | None:
        view = self.call.view
        if view.logprobs is None:
            return None
        result = CompletionLogprobs([], [], [], [])
        for token_id, token_bytes, position in tokens:
            result.tokens.append(token_text(token_id, token_bytes, as_id=view.tokens_as_ids))
            result.text_offset.append(self._progress[index].offsets.next(token_bytes))
            known = position.HasField("chosen")
            result.token_logprobs.append(finite(position.chosen.logprob) if known else None)
            result.top_logprobs.append(_top(position, view.logprobs, view.tokens_as_ids) if known else None)
        return result

    def _completion(self, choices: list[CompletionChoice], usage: Usage | None = None) -> Completion:
        completion = Completion(id=self.id, created=self.created, model=self.model, choices=choices)
        if usage is not None or self.call.include_usage:
            completion.usage = usage
        return completion


def _top(position: TokenLogprobs, count: int, as_id: bool) -> dict[str, float]:
    return {
        token_text(entry.token_id, entry.token_bytes, as_id=as_id): finite(entry.logprob)
        for entry in candidates(position, count)
    }


def _joined(parts: Sequence[CompletionChoice]) -> CompletionChoice:
    first, last = parts[0], parts[-1]
    logprobs = None
    if first.logprobs is not None:
        columns = [part.logprobs for part in parts if part.logprobs is not None]
        logprobs = CompletionLogprobs(
            [token for column in columns for token in column.tokens],
            [logprob for column in columns for logprob in column.token_logprobs],
            [top for column in columns for top in column.top_logprobs],
            [offset for column in columns for offset in column.text_offset],
        )
    token_ids = [part.token_ids for part in parts if part.token_ids is not None]
    return CompletionChoice(
        index=first.index,
        text="".join(part.text for part in parts),
        logprobs=logprobs,
        finish_reason=last.finish_reason,
        stop_reason=last.stop_reason,
        token_ids=[token for ids in token_ids for token in ids] if token_ids else None,
        prompt_token_ids=first.prompt_token_ids,
        prompt_logprobs=first.prompt_logprobs,
    )
