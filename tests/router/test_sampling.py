"""Bounds of sampling parameters: what is refused names the parameter, and the bounds themselves are accepted."""

import math
from typing import Any

import pytest

from halfmoon.errors import ContextLengthError, InvalidRequestError
from halfmoon.v1 import common_pb2
from router.sampling import check_sampling, resolve_sampling

VOCAB = 1000

REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("temperature", {"temperature": -0.1}),
    ("temperature", {"temperature": 100.5}),
    ("temperature", {"temperature": math.nan}),
    ("temperature", {"temperature": math.inf}),
    ("top_p", {"top_p": 1.1}),
    ("top_p", {"top_p": -0.1}),
    ("top_p", {"top_p": math.nan}),
    ("min_p", {"min_p": 1.5}),
    ("presence_penalty", {"presence_penalty": 2.5}),
    ("frequency_penalty", {"frequency_penalty": -2.5}),
    ("frequency_penalty", {"frequency_penalty": math.nan}),
    ("repetition_penalty", {"repetition_penalty": -1.0}),
    ("n", {"n": 129}),
    ("logprobs", {"logprobs": 21}),
    ("prompt_logprobs", {"prompt_logprobs": 21}),
    ("stop", {"stop": ["x"] * 17}),
    ("stop", {"stop": [""]}),
    ("stop", {"stop": ["x" * 1025]}),
    ("stop_token_ids", {"stop_token_ids": [VOCAB]}),
    ("stop_token_ids", {"stop_token_ids": list(range(257))}),
    ("logit_bias", {"logit_bias": {VOCAB: 1.0}}),
    ("logit_bias", {"logit_bias": {2**32 - 1: 1.0}}),
    ("logit_bias", {"logit_bias": {5: math.nan}}),
    ("logit_bias", {"logit_bias": {5: math.inf}}),
    ("min_tokens", {"min_tokens": 5, "max_tokens": 4}),
]

ACCEPTED: list[dict[str, Any]] = [
    {},
    {"temperature": 0.0, "n": 2},
    {"temperature": 100.0, "top_p": 0.0, "min_p": 1.0, "top_k": 10_000},
    {"presence_penalty": -2.0, "frequency_penalty": 2.0, "repetition_penalty": 0.5},
    {"n": 128, "logprobs": 20, "prompt_logprobs": 20},
    {"stop": ["x" * 1024] * 16, "stop_token_ids": list(range(256))},
    {"logit_bias": {VOCAB - 1: -100.0}, "min_tokens": 4, "max_tokens": 4},
]


@pytest.mark.parametrize(("param", "sampling"), REFUSED)
def test_a_value_out_of_bounds_is_refused_by_name(param: str, sampling: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        check_sampling(common_pb2.SamplingParams(**sampling), VOCAB)
    assert caught.value.param == param
    assert param in caught.value.message or param == "stop"


def test_too_many_biases_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="logit_bias"):
        check_sampling(common_pb2.SamplingParams(logit_bias=dict.fromkeys(range(1025), 1.0)), 10_000)


@pytest.mark.parametrize("sampling", ACCEPTED)
def test_bounds_themselves_are_accepted(sampling: dict[str, Any]) -> None:
    check_sampling(common_pb2.SamplingParams(**sampling), VOCAB)


def test_what_is_left_out_is_filled_in() -> None:
    first = resolve_sampling(common_pb2.SamplingParams(), prompt_tokens=10, context=100)
    second = resolve_sampling(common_pb2.SamplingParams(), prompt_tokens=10, context=100)
    assert (first.max_tokens, first.n, first.top_p, first.repetition_penalty) == (90, 1, 1.0, 1.0)
    assert first.seed != second.seed


def test_max_tokens_are_cut_and_min_tokens_with_them() -> None:
    params = resolve_sampling(common_pb2.SamplingParams(max_tokens=500, min_tokens=200), prompt_tokens=10, context=100)
    assert (params.max_tokens, params.min_tokens) == (90, 90)


def test_no_tokens_asked_for_stays_none() -> None:
    assert resolve_sampling(common_pb2.SamplingParams(max_tokens=0), prompt_tokens=10, context=100).max_tokens == 0


def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers() -> None:
    with pytest.raises(ContextLengthError, match=r"100 tokens.*100 tokens") as caught:
        resolve_sampling(common_pb2.SamplingParams(), prompt_tokens=100, context=100)
    assert caught.value.param == "prompt"
