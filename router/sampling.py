"""Sampling parameters as a client may give them: bounds, and what stands in where something is left out.

Errors name the parameter as the OpenAI API does.
"""

import math
import secrets
from dataclasses import replace

from halfmoon.bounds import check_count, check_counts, check_token_ids
from halfmoon.errors import ContextLengthError, InvalidRequestError
from halfmoon.request import SamplingParams
from halfmoon.v1 import common_pb2 as pb
from halfmoon.wire import sampling_from_pb

MAX_STOPS = 16
MAX_STOP_CHARS = 1024

_RANGES = (
    ("temperature", 0.0, 100.0),
    ("top_p", 0.0, 1.0),
    ("min_p", 0.0, 1.0),
    ("presence_penalty", -2.0, 2.0),
    ("frequency_penalty", -2.0, 2.0),
    ("repetition_penalty", 0.0, 100.0),
)


def check_sampling(message: pb.SamplingParams, vocab_size: int) -> None:
    """Raises InvalidRequestError for a value that no prompt could be served with."""
    for name, low, high in _RANGES:
        value = getattr(message, name)
        if not low <= value <= high:
            raise InvalidRequestError(f"{name} is {value:g}, must be from {low:g} to {high:g}", param=name)
    check_counts(message)
    check_count("stop", len(message.stop), MAX_STOPS)
    for stop in message.stop:
        if not 0 < len(stop) <= MAX_STOP_CHARS:
            raise InvalidRequestError(f"each stop string has 1 to {MAX_STOP_CHARS} characters", param="stop")
    check_token_ids(message.stop_token_ids, vocab_size, "stop_token_ids")
    check_token_ids(message.logit_bias, vocab_size, "logit_bias")
    if not all(math.isfinite(bias) for bias in message.logit_bias.values()):
        raise InvalidRequestError("logit_bias holds a value that is not finite", param="logit_bias")
    if message.HasField("max_tokens") and message.min_tokens > message.max_tokens:
        raise InvalidRequestError(
            f"min_tokens is {message.min_tokens}, more than max_tokens, which is {message.max_tokens}",
            param="min_tokens",
        )


def resolve_sampling(message: pb.SamplingParams, *, prompt_tokens: int, context: int) -> SamplingParams:
    """The parameters for a prompt of `prompt_tokens`: `max_tokens` cut to what is left of the context, a seed drawn.

    Raises ContextLengthError when nothing is left.
    """
    if prompt_tokens >= context:
        raise ContextLengthError(
            f"the prompt has {prompt_tokens} tokens, the context of this model is {context} tokens", param="prompt"
        )
    left = context - prompt_tokens
    params = sampling_from_pb(message, max_tokens=left, seed=secrets.randbits(64))
    max_tokens = min(params.max_tokens, left)
    return replace(params, max_tokens=max_tokens, min_tokens=min(params.min_tokens, max_tokens))
