"""How much one request may ask for: the router checks it for clients, the tiers for the size of their buffers."""

from collections.abc import Iterable

from halfmoon.config import MAX_CHOICES, MAX_LOGIT_BIASES, MAX_LOGPROBS, MAX_STOP_TOKEN_IDS
from halfmoon.errors import InvalidRequestError
from halfmoon.v1 import common_pb2 as pb


def check_counts(message: pb.SamplingParams) -> None:
    """Raises InvalidRequestError for more choices, log-probabilities, stop tokens or biases than can be served."""
    check_count("n", message.n, MAX_CHOICES)
    check_count("logprobs", message.logprobs, MAX_LOGPROBS)
    check_count("prompt_logprobs", message.prompt_logprobs, MAX_LOGPROBS)
    check_count("stop_token_ids", len(message.stop_token_ids), MAX_STOP_TOKEN_IDS)
    check_count("logit_bias", len(message.logit_bias), MAX_LOGIT_BIASES)


def check_count(name: str, count: int, bound: int) -> None:
    """Raises InvalidRequestError when `count` is above `bound`."""
    if count > bound:
        raise InvalidRequestError(f"{name} is bounded by {bound}, got {count}", param=name)


def check_token_ids(token_ids: Iterable[int], vocab_size: int, param: str) -> None:
    """Raises InvalidRequestError when an id is past the vocabulary."""
    largest = max(token_ids, default=0)
    if largest >= vocab_size:
        raise InvalidRequestError(
            f"{param} holds the token id {largest}, the vocabulary has {vocab_size} ids from 0", param=param
        )
