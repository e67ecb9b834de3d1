"""Answers of `POST /v1/chat/completions`."""

import msgspec

from gateway.schema.common import PromptLogprobs, Usage


class TopLogprob(msgspec.Struct):
    """One of the most likely tokens; `bytes` is what it decodes to."""

    token: str
    logprob: float
    bytes: list[int]


class ChatTokenLogprob(msgspec.Struct):
    """The token written, and the most likely ones at its place."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct):
    """One entry for each token."""

    content: list[ChatTokenLogprob]


class Delta(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What a chunk adds to a message."""

    role: str | None = None
    content: str | None = None


class ChunkChoice(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One choice of a chunk."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None


class ChatChunk(msgspec.Struct, kw_only=True):
    """A chunk of a stream; the prompt's fields are on the first one, `usage` is left out where it is unset."""

    id: str
    object: str = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    prompt_token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    prompt_logprobs: PromptLogprobs | msgspec.UnsetType = msgspec.UNSET


class AssistantMessage(msgspec.Struct, kw_only=True):
    """The answer of one choice."""

    role: str = "assistant"
    content: str


class ChatChoice(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One choice of a whole answer."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None


class ChatCompletion(msgspec.Struct, kw_only=True):
    """A whole answer."""

    id: str
    object: str = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    prompt_logprobs: PromptLogprobs | msgspec.UnsetType = msgspec.UNSET
