"""What goes wrong: refusals, deaths, cancellation, deadlines, bounds. Nothing may be left anywhere after any of it."""

import asyncio
import time

import pytest

from halfmoon.errors import (
    ContextLengthError,
    DeadlineError,
    InvalidRequestError,
    OverloadedError,
    TransferError,
    UnavailableError,
    WorkerFailedError,
)
from tests.router.cluster import SHORT_PROMPT, running, until
from tests.router.fakes import Script

SLOW = 0.01
LONG_ANSWER = "a long answer " * 20


async def test_no_worker_is_unavailable_at_once_with_a_hint() -> None:
    async with running() as cluster:
        begin = time.monotonic()
        reply = await cluster.ask()
        assert type(reply.error) is UnavailableError
        assert reply.error.retry_after == 1.0
        assert time.monotonic() - begin < 0.5


async def test_service_returns_when_a_decode_worker_does() -> None:
    async with running("p0") as cluster:
        assert isinstance((await cluster.ask()).error, UnavailableError)
        await cluster.add("d0")
        assert (await cluster.ask()).error is None


async def test_a_prompt_that_prefill_refuses_never_reaches_decode() -> None:
    script = Script(prefill_error=ContextLengthError("the prompt has 80 tokens, this worker holds 70", param="prompt"))
    async with running("p0", "d0", script=script) as cluster:
        reply = await cluster.ask()
        assert isinstance(reply.error, ContextLengthError)
        assert reply.error.param == "prompt"
        assert reply.responses == []
        assert not cluster.workers["d0"].decodes


async def test_when_decode_refuses_the_handle_is_released_and_prefill_ends() -> None:
    script = Script(decode_error=OverloadedError("no pages", retry_after=2.0), prefill_gate=asyncio.Event())
    async with running("p0", "d0", script=script) as cluster:
        reply = await cluster.ask()
        assert isinstance(reply.error, OverloadedError)
        assert reply.error.retry_after == 2.0
        await cluster.at_rest()
        assert cluster.workers["p0"].cancelled == 1


async def test_a_failed_transfer_is_one_clear_error() -> None:
    script = Script(decode_error=TransferError("checksum of block 3 differs"))
    async with running("p0", "d0", script=script) as cluster:
        reply = await cluster.ask()
        assert isinstance(reply.error, WorkerFailedError)
        assert "d0" in reply.error.message
        assert "block 3" in reply.error.message


@pytest.mark.parametrize("prompt", ["x" * 80, SHORT_PROMPT])
async def test_the_death_of_decode_ends_its_requests_and_names_it(prompt: str) -> None:
    async with running("p0", "d0", script=Script([LONG_ANSWER], pace=SLOW)) as cluster:
        call = cluster.call(prompt)
        for _ in range(4):
            await call.read()
        await cluster.workers["d0"].die()
        reply = await cluster.send(call)
        assert isinstance(reply.error, WorkerFailedError)
        assert "d0" in reply.error.message
        assert reply.error.retry_after == 1.0


async def test_a_handle_that_decode_has_read_but_not_released_when_it_dies_is_released() -> None:
    script = Script([LONG_ANSWER], pace=SLOW, decode_releases=False)
    async with running("p0", "d0", script=script) as cluster:
        call = cluster.call()
        for _ in range(4):
            await call.read()
        assert cluster.workers["p0"].handles
        await cluster.workers["d0"].die()
        await cluster.send(call)
        await until(lambda: not cluster.workers["p0"].handles)


async def test_the_death_of_prefill_reaches_decode_at_once_which_then_serves_the_request_alone() -> None:
    script = Script(prefill_gate=asyncio.Event())
    async with running("p0", "d0", script=script) as cluster:
        call = cluster.call()
        await until(lambda: cluster.workers["d0"].active == 1)
        await cluster.workers["p0"].die()
        cluster.workers["p0"].handles.clear()
        reply = await cluster.send(call)
        assert reply.error is None
        assert reply.text() == "hello world"
        await cluster.at_rest()
        assert cluster.workers["d0"].cancelled == 1


async def test_the_death_of_prefill_after_its_part_does_not_disturb_the_answer() -> None:
    async with running("p0", "d0", script=Script(["a long answer"], pace=SLOW)) as cluster:
        call = cluster.call()
        for _ in range(4):
            await call.read()
        await cluster.workers["p0"].die()
        assert (await cluster.send(call)).error is None


async def test_a_worker_that_hangs_fails_its_requests_once_it_counts_as_dead() -> None:
    script = Script([LONG_ANSWER], decode_gate=asyncio.Event())
    async with running("d0", script=script) as cluster:
        call = cluster.call()
        await call.read()
        await cluster.workers["d0"].hang()
        reply = await cluster.send(call)
        assert isinstance(reply.error, WorkerFailedError)
        assert "silent" in reply.error.message


async def test_a_dead_worker_gets_nothing_more_and_others_serve() -> None:
    async with running("d0", "d1") as cluster:
        await cluster.workers["d0"].die()
        replies = await asyncio.gather(*(cluster.ask(SHORT_PROMPT) for _ in range(10)))
        assert sum(reply.error is not None for reply in replies) <= 10
        again = await asyncio.gather(*(cluster.ask(SHORT_PROMPT) for _ in range(10)))
        assert all(reply.error is None for reply in again)


@pytest.mark.parametrize("workers", [("p0", "d0"), ("d0",), ("b0",)])
async def test_cancelling_reaches_every_tier(workers: tuple[str, ...]) -> None:
    async with running(*workers, script=Script([LONG_ANSWER], pace=SLOW)) as cluster:
        call = cluster.call()
        for _ in range(5):
            await call.read()
        call.cancel()
        await cluster.at_rest()
        assert cluster.workers[workers[-1]].cancelled == 1
        assert cluster.metric('halfmoon_router_requests_total{outcome="cancelled"}') == 1


async def test_cancelling_during_prefill_releases_the_handle_and_ends_both_tiers() -> None:
    async with running("p0", "d0", script=Script(prefill_gate=asyncio.Event())) as cluster:
        call = cluster.call()
        await until(lambda: cluster.workers["d0"].active == 1)
        call.cancel()
        await cluster.at_rest()
        assert cluster.workers["p0"].cancelled == cluster.workers["d0"].cancelled == 1


async def test_a_handle_that_a_cancelled_request_never_saw_is_withdrawn() -> None:
    """The prefill may have ended, with its KV offered, before it could learn that nobody waits any more."""
    async with running("p0", "d0", script=Script(accept_gate=asyncio.Event())) as cluster:
        call = cluster.call()
        await until(lambda: cluster.workers["p0"].active == 1)
        call.cancel()
        await until(lambda: cluster.workers["p0"].withdrawn)
        assert cluster.workers["p0"].withdrawn == [cluster.workers["p0"].prefills[0].handle_id]


async def test_a_deadline_ends_both_tiers() -> None:
    async with running("p0", "d0", script=Script(prefill_gate=asyncio.Event())) as cluster:
        reply = await cluster.ask(seconds=0.2)
        assert isinstance(reply.error, DeadlineError)


async def test_an_abort_storm_leaves_nothing_and_service_goes_on() -> None:
    script = Script([LONG_ANSWER], pace=SLOW)
    async with running("p0", "p1", "d0", "d1", script=script) as cluster:
        calls = [cluster.call() for _ in range(100)]
        await asyncio.gather(*(call.read() for call in calls))
        for call in calls:
            call.cancel()
        await cluster.at_rest()
        script.texts = ["fine"]
        assert (await cluster.ask()).text() == "fine"


async def test_a_full_router_refuses_at_once_with_a_hint() -> None:
    script = Script(decode_gate=asyncio.Event())
    async with running("d0", script=script, queue=3) as cluster:
        calls = [cluster.call() for _ in range(3)]
        for call in calls:
            await call.read()
        reply = await cluster.ask()
        assert isinstance(reply.error, OverloadedError)
        assert reply.error.retry_after == 1.0
        assert script.decode_gate is not None
        script.decode_gate.set()
        replies = await asyncio.gather(*(cluster.send(call) for call in calls))
        assert all(reply.error is None for reply in replies)
        assert (await cluster.ask()).error is None


async def test_a_request_id_that_is_running_is_refused() -> None:
    script = Script(decode_gate=asyncio.Event())
    async with running("d0", script=script) as cluster:
        first = cluster.call(request_id="same")
        await first.read()
        second = await cluster.send(cluster.call(request_id="same"))
        assert isinstance(second.error, InvalidRequestError)
        assert second.error.param == "request_id"
        first.cancel()


async def test_many_at_once_are_spread_and_each_gets_its_own_answer() -> None:
    async with running("p0", "p1", "d0", "d1", script=Script(["hello wörld"], pace=0.001)) as cluster:
        replies = await asyncio.gather(*(cluster.ask(n=2) for _ in range(60)))
        assert {reply.text(choice) for reply in replies for choice in (0, 1)} == {"hello wörld"}
        for pair in (("p0", "p1"), ("d0", "d1")):
            counts = [len(cluster.workers[name].prefills) + len(cluster.workers[name].decodes) for name in pair]
            assert sum(counts) == 60
            assert min(counts) >= 20
        await cluster.at_rest()
        assert cluster.metric('halfmoon_router_requests_total{outcome="ok"}') == 60
        assert cluster.metric("halfmoon_router_generated_tokens_total") == 60 * 2 * 13


async def test_stopping_finishes_what_runs_and_refuses_new_work() -> None:
    async with running("d0", script=Script(["a short answer"], pace=SLOW)) as cluster:
        call = cluster.call()
        await call.read()
        stopping = asyncio.create_task(cluster.program.stop(5))
        await until(lambda: cluster.program.draining)
        refused = await cluster.ask()
        assert isinstance(refused.error, UnavailableError)
        assert (await cluster.send(call)).text() == "a short answer"
        await stopping


async def test_a_router_that_was_held_up_takes_no_worker_for_dead() -> None:
    async with running("d0") as cluster:
        time.sleep(1.3)  # noqa: ASYNC251 - the loop is to stand still for longer than a worker may be silent
        await asyncio.sleep(0.1)
        assert (await cluster.ask()).error is None
        assert cluster.workers["d0"].agent.registered
        assert cluster.metric('halfmoon_router_workers{role="decode",state="ready"}') == 1
