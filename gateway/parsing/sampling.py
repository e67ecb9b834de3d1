"""Sampling parameters from the fields that both kinds of request share."""

from gateway.parsing import numbers
from gateway.schema.requests import GenerationBody
from halfmoon.v1.common_pb2 import SamplingParams

_REALS = ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")


def sampling_params(
    body: GenerationBody, *, choices: int, max_tokens: int | None, logprobs: int | None, prompt_logprobs: int | None
) -> SamplingParams:
    """The message for the router, with the API's default for what the body leaves out.

    `max_tokens` None means what is left of the context; the numbers that are given by name have been checked.
    """
    message = SamplingParams(
        temperature=1.0,
        n=choices,
        stop=_stop_strings(body.stop),
        stop_token_ids=numbers.token_ids("stop_token_ids", body.stop_token_ids or ()),
        logit_bias=numbers.logit_bias("logit_bias", body.logit_bias or {}),
        min_tokens=numbers.count("min_tokens", body.min_tokens or 0),
        ignore_eos=bool(body.ignore_eos),
        include_stop_str_in_output=bool(body.include_stop_str_in_output),
    )
    for name in _REALS:
        real = getattr(body, name)
        if real is not None:
            setattr(message, name, numbers.real(name, real))
    if body.top_k is not None and body.top_k != -1:
        message.top_k = numbers.count("top_k", body.top_k)
    if body.seed is not None:
        message.seed = numbers.seed("seed", body.seed)
    if max_tokens is not None:
        message.max_tokens = max_tokens
    if logprobs is not None:
        message.logprobs = logprobs
    if prompt_logprobs is not None:
        message.prompt_logprobs = prompt_logprobs
    return message


def _stop_strings(stop: str | list[str] | None) -> list[str]:
    if stop is None:
        return []
    return [stop] if isinstance(stop, str) else stop
