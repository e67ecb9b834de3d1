"""Log-probabilities, echo and token ids in whole answers of both kinds."""

import json
from typing import Any

import pytest

from tests.gateway.fakes import Served
from tests.gateway.speaker import answer, logprob_of
from tests.gateway.streams import CHAT, COMPLETIONS

pytestmark = pytest.mark.asyncio(loop_scope="module")

USER = [{"role": "user", "content": "Hi"}]


def no_constant(name: str) -> float:
    raise AssertionError(f"{name} is not JSON")


async def test_completion_logprobs_are_four_lists(served: Served) -> None:
    got = await served.post(COMPLETIONS, prompt="Hi", max_tokens=4, logprobs=2)
    assert got["choices"][0]["logprobs"] == {
        "tokens": ["G", "r", "bytes:\\xc3", "bytes:\\xbc"],
        "token_logprobs": [logprob_of(token) for token in "Grü".encode()],
        "top_logprobs": [
            {"0": logprob_of(48), "1": logprob_of(49), token: logprob_of(byte)}
            for token, byte in zip(["G", "r", "bytes:\\xc3", "bytes:\\xbc"], "Grü".encode(), strict=True)
        ],
        "text_offset": [0, 1, 2, 2],
    }


async def test_completion_logprobs_of_zero_are_those_of_the_chosen_alone(served: Served) -> None:
    got = await served.post(COMPLETIONS, prompt="Hi", max_tokens=1, logprobs=0)
    assert got["choices"][0]["logprobs"]["top_logprobs"] == [{"G": logprob_of(ord("G"))}]


async def test_an_infinite_logprob_is_a_number_in_valid_json(served: Served) -> None:
    """Row 10."""
    body = {"prompt": "eel", "max_tokens": 40, "logprobs": 1, "echo": True, "prompt_logprobs": 0}
    response = await served.http.post(COMPLETIONS, json=body)
    got = json.loads(response.content, parse_constant=no_constant)["choices"][0]
    assert -9999.0 in got["logprobs"]["token_logprobs"]
    assert got["prompt_logprobs"][1]["101"]["logprob"] == -9999.0


async def test_echo_puts_the_prompt_and_its_logprobs_first(served: Served) -> None:
    """Row 14; nothing is known about the first token."""
    got = await served.post(COMPLETIONS, prompt="Ho!", max_tokens=2, logprobs=1, echo=True)
    choice = got["choices"][0]
    assert choice["text"] == "Ho!Gr"
    assert choice["logprobs"]["tokens"] == ["H", "o", "!", "G", "r"]
    assert choice["logprobs"]["token_logprobs"] == [None, *(logprob_of(ord(letter)) for letter in "o!Gr")]
    assert choice["logprobs"]["top_logprobs"][0] is None
    assert choice["logprobs"]["top_logprobs"][1] == {"0": logprob_of(48), "o": logprob_of(ord("o"))}
    assert choice["logprobs"]["text_offset"] == [0, 1, 2, 3, 4]


async def test_echo_without_new_tokens_gives_the_prompts_logprobs(served: Served) -> None:
    """Row 14."""
    got = await served.post(COMPLETIONS, prompt="Ho", max_tokens=0, logprobs=0, echo=True, n=2)
    for choice in got["choices"]:
        assert (choice["text"], choice["finish_reason"]) == ("Ho", "length")
        assert choice["logprobs"]["token_logprobs"] == [None, logprob_of(ord("o"))]
    assert got["usage"]["completion_tokens"] == 0


async def test_echo_without_logprobs_is_text_alone(served: Served) -> None:
    got = await served.post(COMPLETIONS, prompt=[72, 105], max_tokens=1, echo=True)
    assert got["choices"][0]["text"] == "HiG"
    assert got["choices"][0]["logprobs"] is None
    assert not served.router.requests[0].sampling.HasField("prompt_logprobs")


async def test_echo_shows_no_more_alternatives_than_asked_for(served: Served) -> None:
    got = await served.post(COMPLETIONS, prompt="Ho", max_tokens=1, logprobs=1, prompt_logprobs=3, echo=True)
    choice = got["choices"][0]
    assert served.router.requests[0].sampling.prompt_logprobs == 3
    assert len(choice["logprobs"]["top_logprobs"][1]) == 2
    assert len(choice["prompt_logprobs"][1]) == 4


@pytest.mark.parametrize(("path", "body"), [(COMPLETIONS, {"prompt": "Hi"}), (CHAT, {"messages": USER})])
async def test_prompt_logprobs_name_ids_ranks_and_text(served: Served, path: str, body: dict[str, Any]) -> None:
    got = await served.post(path, **body, max_tokens=1, prompt_logprobs=1)
    entries = (got["choices"][0] if path == COMPLETIONS else got)["prompt_logprobs"]
    assert entries[0] is None
    assert entries[-1] == {
        "48": {"logprob": logprob_of(48), "rank": 1, "decoded_token": "0"},
        "105": {"logprob": logprob_of(105), "rank": None, "decoded_token": "i"},
    }
    assert len(entries) == got["usage"]["prompt_tokens"]


async def test_chat_logprobs_have_bytes_and_alternatives(served: Served) -> None:
    got = await served.post(CHAT, messages=USER, max_tokens=3, logprobs=True, top_logprobs=1)
    content = got["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in content] == ["G", "r", "bytes:\\xc3"]
    assert content[2]["bytes"] == [0xC3]
    assert content[0]["logprob"] == logprob_of(ord("G"))
    assert content[0]["top_logprobs"] == [{"token": "0", "logprob": logprob_of(48), "bytes": [48]}]


async def test_chat_logprobs_without_alternatives(served: Served) -> None:
    got = await served.post(CHAT, messages=USER, max_tokens=1, logprobs=True)
    assert got["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []
    assert served.router.requests[0].sampling.logprobs == 0


async def test_chat_shows_no_logprobs_unless_asked(served: Served) -> None:
    got = await served.post(CHAT, messages=USER, max_tokens=1, logprobs=False, top_logprobs=0)
    assert got["choices"][0]["logprobs"] is None


async def test_completion_token_ids_are_on_each_choice(served: Served) -> None:
    got = await served.post(COMPLETIONS, prompt=["Hi", "Ho"], max_tokens=2, return_token_ids=True)
    assert [choice["prompt_token_ids"] for choice in got["choices"]] == [list(b"Hi"), list(b"Ho")]
    assert [choice["token_ids"] for choice in got["choices"]] == [list(b"Gr"), list(b"Gr")]


async def test_chat_token_ids_of_the_prompt_are_on_the_answer(served: Served) -> None:
    got = await served.post(CHAT, messages=USER, n=2, return_token_ids=True)
    assert got["prompt_token_ids"] == list(b"user:Hi")
    assert [bytes(choice["token_ids"]).decode() for choice in got["choices"]] == [answer(0), answer(1)]


async def test_tokens_can_be_shown_as_ids(served: Served) -> None:
    completion = await served.post(COMPLETIONS, prompt="Hi", max_tokens=1, logprobs=1, return_tokens_as_token_ids=True)
    chat = await served.post(CHAT, messages=USER, max_tokens=1, logprobs=True, return_tokens_as_token_ids=True)
    assert completion["choices"][0]["logprobs"]["tokens"] == ["token_id:71"]
    assert list(completion["choices"][0]["logprobs"]["top_logprobs"][0]) == ["token_id:48", "token_id:71"]
    assert chat["choices"][0]["logprobs"]["content"][0]["token"] == "token_id:71"
