"""One HTTP request for text, checked."""

from dataclasses import dataclass

from gateway.parsing import numbers
from gateway.schema.requests import GenerationBody
from halfmoon.errors import InvalidRequestError
from halfmoon.v1.router_pb2 import GenerateRequest

MAX_CHOICES = 2048
"""Choices of one HTTP request: prompts times n."""


@dataclass(frozen=True, slots=True)
class View:
    """What the answer shows; the numbers are counts of alternatives, None where not asked for."""

    logprobs: int | None = None
    prompt_logprobs: int | None = None
    echo: bool = False
    token_ids: bool = False
    tokens_as_ids: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """What to ask of the router, one request for each prompt, and how to answer; `timeout` is in seconds."""

    request_id: str
    requests: tuple[GenerateRequest, ...]
    choices: int
    timeout: float
    view: View
    stream: bool = False
    include_usage: bool = False


def choices_of(body: GenerationBody, prompts: int) -> int:
    """`n`, checked against the bound of one HTTP request."""
    n = numbers.count("n", 1 if body.n is None else body.n)
    if n < 1:
        raise InvalidRequestError("n must be at least 1", param="n")
    if n * prompts > MAX_CHOICES:
        raise InvalidRequestError(f"n times the number of prompts is {n * prompts}, above {MAX_CHOICES}", param="n")
    return n


def timeout_of(body: GenerationBody, longest: float) -> float:
    """Seconds that the request may take: its own `timeout`, at most `longest`."""
    return longest if body.timeout is None else min(longest, numbers.seconds("timeout", body.timeout))


def wants_usage(body: GenerationBody) -> bool:
    """Whether a stream ends with a chunk for usage."""
    return bool(body.stream_options and body.stream_options.include_usage)
