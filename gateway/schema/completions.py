"""Answers of `POST /v1/completions`; a chunk of a stream has the same shape as the whole."""

import msgspec

from gateway.schema.common import PromptLogprobs, Usage


class CompletionLogprobs(msgspec.Struct):
    """Four lists of one entry for each token; `text_offset` counts characters of the choice's text."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One choice, or what a chunk adds to it."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: PromptLogprobs | None = None


class Completion(msgspec.Struct, kw_only=True):
    """A completion or a chunk of one; `usage` is left out where it is unset."""

    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
