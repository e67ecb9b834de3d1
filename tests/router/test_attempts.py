"""What breaks with a worker is run again: the client sees one answer, whole, told once."""

import asyncio

from halfmoon.errors import TransferError, WorkerFailedError
from tests.router.cluster import running, until
from tests.router.fakes import Script

ANSWER = "a long answer, of which a part has been sent when its worker dies"
SLOW = 0.01


async def test_another_worker_goes_on_where_the_dead_one_stopped() -> None:
    async with running("p0", "d0", "d1", script=Script([ANSWER], pace=SLOW)) as cluster:
        call = cluster.call(n=2)
        begun = [await call.read() for _ in range(8)]
        (busy,) = [each for each in cluster.workers.values() if each.worker_id[0] == "d" and each.active]
        await busy.die()
        reply = await cluster.send(call)
        reply.responses[:0] = begun  # type: ignore[assignment]
        assert reply.error is None
        assert [reply.text(choice) for choice in (0, 1)] == [ANSWER, ANSWER]
        assert reply.usage.completion_tokens == 2 * (len(ANSWER) + 1)
        assert cluster.metric("halfmoon_router_attempts_failed_total") == 1
        assert cluster.metric('halfmoon_router_requests_total{outcome="ok"}') == 1


async def test_a_choice_cut_by_a_stop_string_stays_cut_and_its_next_worker_learns_it() -> None:
    script = Script(["one two three", ANSWER], pace=SLOW)
    async with running("d0", "d1", script=script) as cluster:
        call = cluster.call(n=2, stop=["two"])
        begun = [await call.read() for _ in range(20)]
        (busy,) = [each for each in cluster.workers.values() if each.active]
        (other,) = [each for each in cluster.workers.values() if each is not busy]
        await busy.die()
        reply = await cluster.send(call)
        reply.responses[:0] = begun  # type: ignore[assignment]
        assert reply.text(0) == "one "
        assert reply.text(1) == ANSWER
        await until(lambda: other.stopped)
        assert {choice for _, choice in other.stopped} == {0}


async def test_each_attempt_has_an_id_of_its_own_for_the_workers() -> None:
    script = Script(decode_error=TransferError("checksum of block 3 differs"))
    async with running("p0", "d0", script=script) as cluster:
        reply = await cluster.send(cluster.call(request_id="mine"))
        assert isinstance(reply.error, WorkerFailedError)
        for requests in (cluster.workers["p0"].prefills, cluster.workers["d0"].decodes):
            assert [request.request_id for request in requests] == ["mine", "mine.1", "mine.2"]


async def test_workers_that_a_request_failed_with_are_not_asked_again_while_there_are_others() -> None:
    async with running("p0", "d0", "d1") as cluster:
        cluster.workers["d0"].script = Script(decode_error=TransferError("its data plane is gone"))
        reply = await cluster.ask()
        assert reply.error is None
        assert len(cluster.workers["d0"].decodes) == 1
        assert len(cluster.workers["d1"].decodes) == 1


async def test_a_deadline_ends_the_attempts_too() -> None:
    script = Script(prefill_gate=asyncio.Event())
    async with running("p0", "p1", "d0", script=script) as cluster:
        call = cluster.call(seconds=0.6)
        await until(lambda: cluster.workers["d0"].active == 1)
        (busy,) = [each for each in cluster.workers.values() if each.worker_id[0] == "p" and each.active]
        await busy.die()
        busy.handles.clear()
        reply = await cluster.send(call)
        assert reply.error is not None
        assert reply.error.reason == "DEADLINE_EXCEEDED"
