"""What answers of both kinds hold."""

import msgspec


class PromptTokensDetails(msgspec.Struct):
    """How the prompt's tokens were come by."""

    cached_tokens: int


class Usage(msgspec.Struct):
    """Tokens that a request took."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class PromptLogprob(msgspec.Struct):
    """One candidate at a position of the prompt; `rank` counts from 1, null where it was not computed."""

    logprob: float
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]
"""For each prompt token its candidates by token id; null for the first."""
