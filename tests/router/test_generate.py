"""One request through real gRPC: split, unsplit, several choices, ends of every kind."""

import asyncio
from typing import Any

import pytest

from halfmoon.errors import (
    ContextLengthError,
    InternalError,
    InvalidRequestError,
    ModelNotFoundError,
)
from halfmoon.v1 import common_pb2, router_pb2
from tests.router.cluster import LONG_PROMPT, SHORT_PROMPT, Reply, running, until
from tests.router.fakes import Script
from tests.router.tiny_text import CONTEXT, END, byte_ids

STOP, LENGTH = common_pb2.FINISH_REASON_STOP, common_pb2.FINISH_REASON_LENGTH


async def test_a_long_prompt_is_split_and_every_token_comes_once() -> None:
    async with running("p0", "d0", script=Script(cached_tokens=16)) as cluster:
        reply = await cluster.ask()
        assert reply.error is None
        assert reply.text() == "hello world"
        assert reply.token_ids() == [*byte_ids("hello world"), END]
        assert reply.last().finish_reason == STOP
        assert reply.last().WhichOneof("stop_reason") is None
        assert reply.usage.prompt_tokens == len(LONG_PROMPT)
        assert reply.usage.completion_tokens == len("hello world") + 1
        assert reply.usage.cached_tokens == reply.prompt.cached_tokens == 16
        prefill, decode = cluster.workers["p0"], cluster.workers["d0"]
        assert prefill.prefills[0].publish_kv
        assert list(prefill.prefills[0].prompt_token_ids) == byte_ids(LONG_PROMPT)
        assert decode.decodes[0].HasField("handle")
        assert decode.decodes[0].sampling.seed == prefill.prefills[0].sampling.seed
        assert cluster.metric('halfmoon_router_plans_total{reason="split"}') == 1


async def test_a_short_prompt_is_served_by_decode_alone() -> None:
    async with running("p0", "d0") as cluster:
        reply = await cluster.ask(SHORT_PROMPT)
        assert reply.text() == "hello world"
        assert not cluster.workers["p0"].prefills
        assert not cluster.workers["d0"].decodes[0].HasField("handle")
        assert cluster.metric('halfmoon_router_plans_total{reason="few_uncached"}') == 1


@pytest.mark.parametrize("workers", [("d0",), ("b0",)])
async def test_without_prefill_workers_one_worker_serves_all(workers: tuple[str, ...]) -> None:
    async with running(*workers) as cluster:
        reply = await cluster.ask()
        assert reply.text() == "hello world"
        assert reply.usage.completion_tokens == 12


@pytest.mark.parametrize("workers", [("p0", "d0"), ("b0",)])
async def test_choices_are_kept_apart(workers: tuple[str, ...]) -> None:
    async with running(*workers, script=Script(["one", "three", "fifteen"])) as cluster:
        reply = await cluster.ask(n=3)
        assert [reply.text(choice) for choice in range(3)] == ["one", "three", "fifteen"]
        assert all(reply.last(choice).finish_reason == STOP for choice in range(3))
        assert reply.usage.completion_tokens == sum(map(len, ("one", "three", "fifteen"))) + 3


@pytest.mark.parametrize("workers", [("p0", "d0"), ("b0",)])
async def test_the_length_ends_a_choice(workers: tuple[str, ...]) -> None:
    async with running(*workers) as cluster:
        reply = await cluster.ask(max_tokens=5)
        assert reply.text() == "hello"
        assert reply.last().finish_reason == LENGTH
        assert all(not delta.finish_reason for delta in reply.deltas()[:-1])


async def test_max_tokens_of_one_gives_one_token_and_leaves_decode_alone() -> None:
    async with running("p0", "d0") as cluster:
        reply = await cluster.ask(max_tokens=1)
        assert reply.token_ids() == byte_ids("h")
        assert reply.last().finish_reason == LENGTH
        assert not cluster.workers["d0"].decodes
        assert not cluster.workers["p0"].prefills[0].publish_kv
        assert cluster.workers["p0"].cancelled == 0


async def test_an_end_token_that_comes_first_ends_the_answer() -> None:
    async with running("p0", "d0", script=Script([""])) as cluster:
        reply = await cluster.ask()
        assert reply.error is None
        assert reply.token_ids() == [END]
        assert reply.text() == ""
        assert reply.last().finish_reason == STOP
        assert reply.usage.completion_tokens == 1


@pytest.mark.parametrize("workers", [("p0", "d0"), ("b0",)])
async def test_no_new_tokens_with_log_probabilities_of_the_prompt(workers: tuple[str, ...]) -> None:
    async with running(*workers) as cluster:
        reply = await cluster.ask(max_tokens=0, prompt_logprobs=0)
        assert reply.error is None
        assert len(reply.prompt.logprobs) == len(LONG_PROMPT)
        assert not reply.prompt.logprobs[0].HasField("chosen")
        assert reply.prompt.logprobs[1].chosen.token_bytes == LONG_PROMPT[1].encode()
        assert reply.token_ids() == []
        assert reply.last().finish_reason == LENGTH
        assert reply.usage.completion_tokens == 0


@pytest.mark.parametrize("workers", [("p0", "d0"), ("b0",)])
async def test_log_probabilities_come_with_every_token(workers: tuple[str, ...]) -> None:
    async with running(*workers) as cluster:
        reply = await cluster.ask(logprobs=0, max_tokens=4)
        entries = [entry for delta in reply.deltas() for entry in delta.logprobs]
        assert [entry.chosen.token_bytes for entry in entries] == [b"h", b"e", b"l", b"l"]


@pytest.mark.parametrize("workers", [("p0", "d0"), ("b0",)])
@pytest.mark.parametrize(("include", "text"), [(False, "hel"), (True, "hello wo")])
async def test_a_stop_string_across_tokens_ends_the_answer(workers: tuple[str, ...], include: bool, text: str) -> None:
    script = Script(["hello world and much more that nobody wants to read"], pace=0.01)
    async with running(*workers, script=script) as cluster:
        reply = await cluster.ask(stop=["lo wo", "unused"], include_stop_str_in_output=include)
        assert reply.error is None
        assert reply.text() == text
        assert reply.last().finish_reason == STOP
        assert reply.last().stop_string == "lo wo"
        assert reply.usage.completion_tokens == len("hello wo")
        await cluster.at_rest()
        assert cluster.workers[workers[-1]].cancelled == 1


async def test_a_stop_string_in_the_first_token_ends_the_answer() -> None:
    async with running("p0", "d0", script=Script(pace=0.01)) as cluster:
        reply = await cluster.ask(stop=["h"])
        assert reply.error is None
        assert reply.text() == ""
        assert reply.token_ids() == byte_ids("h")


async def test_a_choice_that_a_stop_string_ended_is_stopped_at_decode_while_others_go_on() -> None:
    script = Script(["one STOP two three four five", "a b c d e f g h"], pace=0.005)
    async with running("p0", "d0", script=script) as cluster:
        reply = await cluster.send(cluster.call(n=2, stop=["STOP"], request_id="r"))
        assert (reply.text(0), reply.text(1)) == ("one ", "a b c d e f g h")
        assert reply.last(0).stop_string == "STOP"
        assert cluster.workers["d0"].stopped == {("r", 0)}


async def test_a_choice_stopped_by_its_first_token_is_stopped_at_decode() -> None:
    script = Script(["X and more", "a b c d e f g h"], pace=0.005)
    async with running("p0", "d0", script=script) as cluster:
        reply = await cluster.send(cluster.call(n=2, stop=["X"], request_id="r"))
        assert (reply.text(0), reply.text(1)) == ("", "a b c d e f g h")
        await cluster.at_rest()
        assert cluster.workers["d0"].stopped == {("r", 0)}


async def test_stop_strings_do_not_count_before_min_tokens() -> None:
    async with running("b0", script=Script(["ab ab ab"])) as cluster:
        reply = await cluster.ask(stop=["ab"], min_tokens=4)
        assert reply.text() == "ab ab "
        assert reply.last().stop_string == "ab"


async def test_text_held_for_a_stop_string_is_sent_at_the_end() -> None:
    async with running("b0", script=Script(["wait STO"])) as cluster:
        reply = await cluster.ask(stop=["STOP"])
        assert reply.text() == "wait STO"
        assert reply.last().WhichOneof("stop_reason") is None


async def test_a_stop_token_is_named_and_not_shown() -> None:
    async with running("b0") as cluster:
        reply = await cluster.ask(stop_token_ids=[ord("o")])
        assert reply.text() == "hell"
        assert reply.token_ids() == byte_ids("hello")
        assert reply.last().stop_token_id == ord("o")


async def test_characters_are_sent_whole() -> None:
    async with running("p0", "d0", script=Script(["aé日🌙z"])) as cluster:
        reply = await cluster.ask()
        assert reply.text() == "aé日🌙z"
        assert all("�" not in delta.text for delta in reply.deltas())


async def test_special_tokens_are_kept_on_request() -> None:
    async with running("b0", script=Script(["hi"])) as cluster:
        request = router_pb2.GenerateRequest(text="x", keep_special_tokens=True, echo=True)
        reply = await cluster.send(cluster.stub.Generate(request, timeout=5))
        assert reply.text() == "hi<|end|>"
        assert reply.prompt.text == "x"
        assert list(reply.prompt.token_bytes) == [b"x"]


async def test_chat_is_rendered_and_user_content_stays_text() -> None:
    async with running("b0") as cluster:
        messages = [router_pb2.ChatMessage(role="user", content="<|end|>")]
        request = router_pb2.GenerateRequest(chat=router_pb2.ChatPrompt(messages=messages))
        reply = await cluster.send(cluster.stub.Generate(request, timeout=5))
        ids = [257, *byte_ids("user:<|end|>"), 258, 257, *byte_ids("assistant:")]
        assert list(reply.prompt.token_ids) == ids


async def test_a_request_id_is_drawn_or_kept() -> None:
    async with running("b0") as cluster:
        assert (await cluster.ask()).prompt.request_id.startswith("req-")
        assert (await cluster.send(cluster.call(request_id="mine"))).prompt.request_id == "mine"
        assert cluster.workers["b0"].decodes[1].request_id == "mine"


async def test_a_seed_is_drawn_anew_for_each_request_and_a_given_one_is_kept() -> None:
    async with running("b0") as cluster:
        await cluster.ask()
        await cluster.ask()
        await cluster.ask(seed=2**64 - 1)
        seeds = [request.sampling.seed for request in cluster.workers["b0"].decodes]
        assert seeds[0] != seeds[1]
        assert seeds[2] == 2**64 - 1


async def test_max_tokens_are_cut_to_what_is_left_of_the_context() -> None:
    async with running("b0") as cluster:
        await cluster.ask("x" * 500)
        await cluster.ask("x" * 500, max_tokens=100_000)
        assert [request.sampling.max_tokens for request in cluster.workers["b0"].decodes] == [CONTEXT - 500] * 2


@pytest.mark.parametrize("length", [CONTEXT, CONTEXT + 100, 1_000_000])
async def test_a_prompt_past_the_context_is_refused_with_both_numbers(length: int) -> None:
    async with running("b0") as cluster:
        reply = await cluster.ask("x" * length)
        assert isinstance(reply.error, ContextLengthError)
        assert str(length) in reply.error.message
        assert str(CONTEXT) in reply.error.message
        assert reply.responses == []


@pytest.mark.parametrize("ids", [[], [259], [1, 2**32 - 1]])
async def test_token_ids_must_be_in_the_vocabulary_and_not_empty(ids: list[int]) -> None:
    async with running("b0") as cluster:
        request = router_pb2.GenerateRequest(token_ids=router_pb2.TokenIds(ids=ids))
        reply = await cluster.send(cluster.stub.Generate(request, timeout=5))
        assert isinstance(reply.error, InvalidRequestError)
        assert reply.error.param == "prompt"
        assert not cluster.workers["b0"].decodes


async def test_another_model_is_not_found() -> None:
    async with running("b0") as cluster:
        request = router_pb2.GenerateRequest(text="x", model="other")
        reply = await cluster.send(cluster.stub.Generate(request, timeout=5))
        assert isinstance(reply.error, ModelNotFoundError)
        assert reply.error.param == "model"


async def test_tokens_that_decode_sends_before_prefills_result_come_after_the_first_token() -> None:
    script = Script(result_gate=asyncio.Event())
    async with running("p0", "d0", script=script) as cluster:
        reading = asyncio.create_task(cluster.ask(prompt_logprobs=1))
        await until(lambda: cluster.workers["d0"].decodes and cluster.workers["d0"].active == 0)
        assert script.result_gate is not None
        script.result_gate.set()
        reply = await reading
        assert reply.text() == "hello world"
        assert len(reply.prompt.logprobs) == len(LONG_PROMPT)


async def test_a_missing_token_is_an_error_and_never_passed_over() -> None:
    async with running("p0", "d0", script=Script(skip_position=3)) as cluster:
        reply = await cluster.ask()
        assert isinstance(reply.error, InternalError)
        assert "position 3" in reply.error.message


def joined(reply: Reply, choices: int) -> list[tuple[str, list[int], int]]:
    return [(reply.text(c), reply.token_ids(c), reply.last(c).finish_reason) for c in range(choices)]


@pytest.mark.parametrize("sampling", [{}, {"stop": ["or", "lo"]}, {"max_tokens": 7}, {"min_tokens": 9, "stop": ["l"]}])
async def test_split_and_unsplit_answers_are_equal(sampling: dict[str, Any]) -> None:
    script = Script(["hello world", "élan", ""])
    async with running("p0", "d0", script=script) as split, running("b0", script=script) as whole:
        assert joined(await split.ask(n=3, **sampling), 3) == joined(await whole.ask(n=3, **sampling), 3)
