"""`POST /v1/completions`, whole answers: their fields, prompts of every kind, parameters on their way to the router."""

import asyncio
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from tests.gateway.fakes import Served
from tests.gateway.speaker import answer
from tests.gateway.streams import COMPLETIONS

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_answer_has_the_fields_of_the_api(served: Served) -> None:
    got = await served.post(COMPLETIONS, model="moon", prompt="Hi", max_tokens=4)
    assert got["object"] == "text_completion"
    assert got["id"].startswith("cmpl-")
    assert got["model"] == "moon"
    assert got["created"] > 1_700_000_000
    assert got["choices"] == [{"index": 0, "text": "Grü", "logprobs": None, "finish_reason": "length"}]
    assert got["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 4,
        "total_tokens": 6,
        "prompt_tokens_details": {"cached_tokens": 1},
    }


async def test_a_choice_that_met_a_stop_string_says_which(served: Served) -> None:
    got = await served.post(COMPLETIONS, prompt="Hi", max_tokens=100)
    choice = got["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == (answer(0), "stop", "0")


@pytest.mark.parametrize(
    ("prompt", "asked"),
    [
        ("Hi", [{"text": "Hi"}]),
        (["Hi"], [{"text": "Hi"}]),
        (["a", "b"], [{"text": "a"}, {"text": "b"}]),
        ([1, 2], [{"tokenIds": {"ids": [1, 2]}}]),
        ([[1, 2], [3]], [{"tokenIds": {"ids": [1, 2]}}, {"tokenIds": {"ids": [3]}}]),
        ("", [{"text": ""}]),
    ],
)
async def test_prompt_may_be_text_or_ids_or_a_list_of_either(
    served: Served, prompt: object, asked: list[dict[str, Any]]
) -> None:
    await served.post(COMPLETIONS, prompt=prompt)
    inputs = [MessageToDict(request) for request in served.router.requests]
    assert sorted(({key: value for key, value in got.items() if key in asked[0]} for got in inputs), key=str) == asked


async def test_choices_of_several_prompts_are_numbered_prompt_by_prompt(served: Served) -> None:
    got = await served.post(COMPLETIONS, prompt=["a", "bc"], n=2, best_of=2, max_tokens=100)
    assert [choice["index"] for choice in got["choices"]] == [0, 1, 2, 3]
    assert [choice["text"] for choice in got["choices"]] == [answer(0), answer(1), answer(0), answer(1)]
    assert got["usage"]["prompt_tokens"] == 3


async def test_defaults_are_those_of_the_api(served: Served) -> None:
    """Nulls count as absent; an absent seed is left for the router to draw."""
    await served.post(COMPLETIONS, prompt="Hi", model=None, temperature=None, stop=None, logit_bias=None, seed=None)
    request = served.router.requests[0]
    sampling = request.sampling
    assert request.model == ""
    assert (sampling.temperature, sampling.max_tokens, sampling.n) == (1.0, 16, 1)
    for name in ("top_p", "seed", "logprobs", "prompt_logprobs"):
        assert not sampling.HasField(name)
    assert not request.keep_special_tokens
    assert request.timeout_ms == pytest.approx(600_000, abs=1000)


async def test_every_sampling_parameter_reaches_the_router(served: Served) -> None:
    """Rows 6, 11, 15, 16: what the gateway is told about stops, biases and seeds, the router is told too."""
    await served.post(
        COMPLETIONS,
        prompt="Hi",
        n=3,
        max_tokens=7,
        min_tokens=2,
        temperature=0.5,
        top_p=0.25,
        top_k=40,
        min_p=0.125,
        presence_penalty=1.5,
        frequency_penalty=-1.5,
        repetition_penalty=1.25,
        logit_bias={"5": -100, "123456": 2.5},
        seed=7,
        stop=["a", "bc"],
        stop_token_ids=[9, 8],
        include_stop_str_in_output=True,
        ignore_eos=True,
        logprobs=0,
        prompt_logprobs=0,
    )
    sampling = served.router.requests[0].sampling
    assert MessageToDict(sampling, preserving_proto_field_name=True) == {
        "n": 3,
        "max_tokens": 7,
        "min_tokens": 2,
        "temperature": 0.5,
        "top_p": 0.25,
        "top_k": 40,
        "min_p": 0.125,
        "presence_penalty": 1.5,
        "frequency_penalty": -1.5,
        "repetition_penalty": 1.25,
        "logit_bias": {"5": -100.0, "123456": 2.5},
        "seed": "7",
        "stop": ["a", "bc"],
        "stop_token_ids": [9, 8],
        "include_stop_str_in_output": True,
        "ignore_eos": True,
        "logprobs": 0,
        "prompt_logprobs": 0,
    }


@pytest.mark.parametrize(
    ("seed", "wire"),
    [(0, 0), (1, 1), (-1, 2**64 - 1), (-(2**63), 2**63), (2**63, 2**63), (2**64 - 1, 2**64 - 1)],
)
async def test_all_64_bits_of_a_seed_count(served: Served, seed: int, wire: int) -> None:
    """Row 16: a negative seed is its two's complement."""
    await served.post(COMPLETIONS, prompt="Hi", seed=seed)
    assert served.router.requests[0].sampling.seed == wire


async def test_greedy_with_several_choices_and_top_p_of_zero_is_accepted(served: Served) -> None:
    """Row 22."""
    await served.post(COMPLETIONS, prompt="Hi", temperature=0, n=2, top_p=0)
    sampling = served.router.requests[0].sampling
    assert (sampling.temperature, sampling.n, sampling.top_p) == (0, 2, 0)
    assert sampling.HasField("top_p")


async def test_one_stop_string_may_stand_alone_and_top_k_of_minus_one_is_off(served: Served) -> None:
    await served.post(COMPLETIONS, prompt="Hi", stop="\n", top_k=-1)
    sampling = served.router.requests[0].sampling
    assert (list(sampling.stop), sampling.top_k) == (["\n"], 0)


async def test_priority_timeout_and_special_tokens_reach_the_router(served: Served) -> None:
    await served.post(COMPLETIONS, prompt="Hi", priority=-3, timeout=2.5, skip_special_tokens=False)
    request = served.router.requests[0]
    assert request.priority == -3
    assert request.timeout_ms == pytest.approx(2500, abs=200)
    assert request.keep_special_tokens


async def test_no_op_and_unknown_parameters_are_accepted(served: Served) -> None:
    await served.post(
        COMPLETIONS, prompt="Hi", suffix=None, user="me", best_of=1, response_format={"type": "text"}, what=[{"is": 1}]
    )


async def test_request_id_of_the_client_names_the_request_everywhere(served: Served) -> None:
    response = await served.http.post(COMPLETIONS, json={"prompt": "Hi"}, headers={"X-Request-Id": "job-17"})
    assert response.headers["x-request-id"] == "job-17"
    assert response.json()["id"] == "cmpl-job-17"
    assert served.router.requests[0].request_id == "job-17"


async def test_prompts_of_a_list_get_ids_of_their_own(served: Served) -> None:
    await served.http.post(COMPLETIONS, json={"prompt": ["a", "b"]}, headers={"X-Request-Id": "job"})
    assert sorted(request.request_id for request in served.router.requests) == ["job-0", "job-1"]


@pytest.mark.parametrize("given", [None, "", "x" * 101, "a b", "tab\there"])
async def test_an_unfit_request_id_is_replaced(served: Served, given: str | None) -> None:
    headers = {} if given is None else {"X-Request-Id": given}
    response = await served.http.post(COMPLETIONS, json={"prompt": "Hi"}, headers=headers)
    drawn = response.headers["x-request-id"]
    assert drawn != given
    assert served.router.requests[0].request_id == drawn
    assert len(drawn) == 32


async def test_an_id_in_use_gets_a_suffix_at_the_router_alone(served: Served) -> None:
    """A retry with the same id is no error while the first request is still running."""
    ask = [served.http.post(COMPLETIONS, json={"prompt": "Hi"}, headers={"X-Request-Id": "same"}) for _ in range(3)]
    responses = await asyncio.gather(*ask)
    assert {response.headers["x-request-id"] for response in responses} == {"same"}
    ids = [request.request_id for request in served.router.requests]
    assert len(set(ids)) == 3
    assert all(name.startswith("same") for name in ids)
