"""The reference outputs of the default model (`smollm2_greedy.json`, computed by Hugging Face transformers)."""

import json
from pathlib import Path
from typing import Any

import httpx

TOLERANCE = 2e-3
"""Of log-probabilities, absolute."""

THREE = ("france", "code", "emoji")
"""Cases that stand for all where the whole set would take too long."""


def cases() -> dict[str, dict[str, Any]]:
    """The cases by name."""
    stored = json.loads((Path(__file__).parent / "smollm2_greedy.json").read_text())
    return {case["name"]: case for case in stored["cases"]}


def request(case: dict[str, Any], **more: object) -> dict[str, object]:
    """The completion request of a case, by its token ids."""
    return {
        "prompt": case["prompt_token_ids"],
        "max_tokens": len(case["output_token_ids"]),
        "temperature": 0,
        "logprobs": 5,
        "return_token_ids": True,
        **more,
    }


async def complete(client: httpx.AsyncClient, **body: object) -> dict[str, Any]:
    """One completion; fails unless it is 200."""
    response = await client.post("/v1/completions", json=body, timeout=240)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def assert_equal(case: dict[str, Any], answer: dict[str, Any]) -> None:
    """The same token ids, and log-probabilities within the tolerance."""
    choice = answer["choices"][0]
    assert choice["token_ids"] == case["output_token_ids"]
    for ours, theirs in zip(choice["logprobs"]["token_logprobs"], case["logprobs"], strict=True):
        assert abs(ours - theirs) < TOLERANCE
    scored = choice.get("prompt_logprobs")
    if scored is not None:
        assert scored[0] is None
        for token, entry, theirs in zip(
            case["prompt_token_ids"][1:], scored[1:], case["prompt_logprobs"][1:], strict=True
        ):
            assert abs(entry[str(token)]["logprob"] - theirs) < TOLERANCE
