"""Answers of `POST /v1/chat/completions`."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec

from gateway.answers.base import Answer, finish_reason, stop_reason
from gateway.answers.tokens import finite, prompt_logprobs, token_text
from gateway.schema.chat import (
    AssistantMessage,
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    ChatLogprobs,
    ChatTokenLogprob,
    ChunkChoice,
    Delta,
    TopLogprob,
)
from gateway.schema.common import Usage
from halfmoon.v1.common_pb2 import TokenLogprob
from halfmoon.v1.router_pb2 import ChoiceDelta, PromptInfo


class ChatAnswer(Answer[ChatChunk]):
    """Every choice begins with a chunk that names the role; the very first chunk tells about the prompt too."""

    id_prefix = "chatcmpl"
    param_names: ClassVar[Mapping[str, str]] = {"logprobs": "top_logprobs", "prompt": "messages"}

    def usage_chunk(self, usage: Usage) -> ChatChunk:
        """The last chunk of a stream that reports usage."""
        chunk = self._chunk([])
        chunk.usage = usage
        return chunk

    def join(self, chunks: Sequence[ChatChunk], usage: Usage) -> ChatCompletion:
        """The whole answer."""
        parts: defaultdict[int, list[ChunkChoice]] = defaultdict(list)
        for chunk in chunks:
            for choice in chunk.choices:
                parts[choice.index].append(choice)
        return ChatCompletion(
            id=self.id,
            created=self.created,
            model=self.model,
            choices=[_joined(parts[index]) for index in sorted(parts)],
            usage=usage,
            prompt_token_ids=chunks[0].prompt_token_ids,
            prompt_logprobs=chunks[0].prompt_logprobs,
        )

    def _open(self, prompt: int, info: PromptInfo) -> list[ChatChunk]:
        view = self.call.view
        chunks = [
            self._chunk(
                [
                    ChunkChoice(
                        index=index,
                        delta=Delta(role="assistant", content=""),
                        logprobs=None,
                        finish_reason=None,
                    )
                ]
            )
            for index in range(self.call.choices)
        ]
        if view.token_ids:
            chunks[0].prompt_token_ids = list(info.token_ids)
        if view.prompt_logprobs is not None:
            chunks[0].prompt_logprobs = prompt_logprobs(info.logprobs, view.prompt_logprobs, as_id=view.tokens_as_ids)
        return chunks

    def _extend(self, prompt: int, delta: ChoiceDelta) -> list[ChatChunk]:
        if self._tells_nothing(delta):
            return []
        choice = ChunkChoice(
            index=delta.index,
            delta=Delta(content=delta.text),
            logprobs=self._logprobs(delta),
            finish_reason=finish_reason(delta),
            stop_reason=stop_reason(delta),
            token_ids=list(delta.token_ids) if self.call.view.token_ids else None,
        )
        return [self._chunk([choice])]

    def _logprobs(self, delta: ChoiceDelta) -> ChatLogprobs | None:
        view = self.call.view
        if view.logprobs is None:
            return None
        content = [
            ChatTokenLogprob(
                self._shown(position.chosen),
                finite(position.chosen.logprob),
                list(position.chosen.token_bytes),
                [
                    TopLogprob(self._shown(entry), finite(entry.logprob), list(entry.token_bytes))
                    for entry in position.top[: view.logprobs]
                ],
            )
            for position in delta.logprobs
        ]
        return ChatLogprobs(content)

    def _shown(self, entry: TokenLogprob) -> str:
        return token_text(entry.token_id, entry.token_bytes, as_id=self.call.view.tokens_as_ids)

    def _chunk(self, choices: list[ChunkChoice]) -> ChatChunk:
        return ChatChunk(
            id=self.id,
            created=self.created,
            model=self.model,
            choices=choices,
            usage=None if self.call.include_usage else msgspec.UNSET,
        )


def _joined(parts: Sequence[ChunkChoice]) -> ChatChoice:
    last = parts[-1]
    logprobs = [part.logprobs.content for part in parts if part.logprobs is not None]
    token_ids = [part.token_ids for part in parts if part.token_ids is not None]
    return ChatChoice(
        index=last.index,
        message=AssistantMessage(content="".join(part.delta.content or "" for part in parts)),
        logprobs=ChatLogprobs([entry for content in logprobs for entry in content]) if logprobs else None,
        finish_reason=last.finish_reason,
        stop_reason=last.stop_reason,
        token_ids=[token for ids in token_ids for token in ids] if token_ids else None,
    )
