"""Whatever goes wrong in a fetch is an error within its deadline, and neither process is harmed."""

import asyncio
import signal
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from halfmoon.v1 import kvtransfer_pb2
from tests.kvtransfer.device.workers import GEOMETRY, Worker, checksums, worker


@pytest.fixture(scope="module")
def reader() -> Iterator[Worker]:
    """Survives all that its owners do."""
    with worker(shards=2) as started:
        yield started


@pytest.fixture
def owner() -> Iterator[Worker]:
    with worker(shards=4, grant_seconds=1.0, lease_seconds=1.0) as started:
        yield started


async def test_an_owner_that_is_stopped_costs_a_fetch_its_deadline_and_no_more(owner: Worker, reader: Worker) -> None:
    handle = await owner.offer(2, counts=[1])
    await reader.start_fetch(handle, [0, 1], seconds=6.0)
    await owner.until_waiting()
    owner.signal(signal.SIGSTOP)
    began = time.monotonic()
    got = await reader.answer()
    assert got["error"] in {"DeadlineError", "UnavailableError"}
    assert time.monotonic() - began < 8.0
    owner.signal(signal.SIGCONT)
    await reader.assert_at_rest()
    await owner.do("drop", handle=handle.handle_id.hex())
    await owner.assert_at_rest()


async def test_an_owner_that_is_killed_is_an_error_and_the_next_one_can_be_read(owner: Worker, reader: Worker) -> None:
    handle = await owner.offer(2, counts=[1])
    await reader.start_fetch(handle, [0, 1])
    await owner.until_waiting()
    owner.signal(signal.SIGKILL)
    got = await reader.answer()
    assert got["error"] == "UnavailableError"
    assert got["sums"] == checksums(handle, GEOMETRY, [0])
    with worker(shards=4) as another:
        handle = await another.offer(1, counts=[1])
        assert (await reader.fetch(handle, [0]))["sums"] == checksums(handle, GEOMETRY, [0])
    await reader.assert_at_rest()


async def test_a_reader_that_is_killed_leaves_nothing_at_the_owner(owner: Worker) -> None:
    with worker(shards=2) as reader:
        handle = await owner.offer(2, counts=[1])
        await reader.start_fetch(handle, [0, 1])
        await owner.until_waiting()
        reader.signal(signal.SIGKILL)
    await owner.do("drop", handle=handle.handle_id.hex())
    await owner.assert_at_rest()


async def test_a_grant_that_runs_out_is_an_error_and_is_let_go(owner: Worker, reader: Worker) -> None:
    """The reader sleeps while it holds a grant that it has not pulled."""
    handle = await owner.offer(2, counts=[1])
    await reader.start_fetch(handle, [0, 1], seconds=10.0)
    await owner.until_waiting()
    reader.signal(signal.SIGSTOP)
    await owner.do("add", handle=handle.handle_id.hex(), first=1, counts=[1])
    await owner.do("seal", handle=handle.handle_id.hex())
    await asyncio.sleep(2.0)
    reader.signal(signal.SIGCONT)
    got = await reader.answer()
    assert got["error"] in {"TransferError", "DeadlineError"}
    assert got["sums"] == checksums(handle, GEOMETRY, [0])
    assert not (await owner.do("taken", handle=handle.handle_id.hex()))["taken"]
    await reader.assert_at_rest()
    await owner.assert_at_rest()


async def test_a_handle_that_ends_under_its_reader_says_why(owner: Worker, reader: Worker) -> None:
    handle = await owner.offer(2, counts=[1])
    await reader.start_fetch(handle, [0, 1])
    await owner.until_waiting()
    await owner.do("drop", handle=handle.handle_id.hex())
    got = await reader.answer()
    assert got["error"] == "LeaseExpiredError"
    assert "dropped" in got["message"]
    await owner.assert_at_rest()


async def test_a_handle_that_nobody_reads_ends_with_its_lease(owner: Worker, reader: Worker) -> None:
    handle = await owner.offer(1, counts=[1])
    assert not (await owner.do("taken", handle=handle.handle_id.hex()))["taken"]
    await owner.assert_at_rest()
    assert (await reader.fetch(handle, [0]))["error"] == "LeaseExpiredError"


async def test_the_handle_of_another_process_is_refused(owner: Worker, reader: Worker) -> None:
    handle = await owner.offer(1, counts=[1])
    stale = kvtransfer_pb2.KvHandle.FromString(handle.SerializeToString())
    stale.owner_incarnation += 1
    assert (await reader.fetch(stale, [0]))["error"] == "StaleIncarnationError"


async def test_other_bits_than_the_owner_has_are_not_taken(reader: Worker) -> None:
    with worker(shards=4, corrupting=True) as owner:
        handle = await owner.offer(2, counts=[1, 1])
        got = await reader.fetch(handle, [0, 1])
        assert (got["error"], got["sums"]) == ("TransferError", {})
        assert "other bits" in got["message"]


async def test_an_owner_of_another_model_is_refused_with_both_named(reader: Worker) -> None:
    with worker(shards=4, fingerprint="other") as owner:
        handle = await owner.offer(1, counts=[1])
        got = await reader.fetch(handle, [0])
        assert got["error"] == "IncompatibleError"
        assert "is model, the owner's is other" in got["message"]


async def test_pages_that_cannot_match_are_refused_at_the_handshake_with_both_named(reader: Worker) -> None:
    with worker(shards=4, geometry=replace(GEOMETRY, kv_heads=4)) as owner:
        handle = await owner.offer(1, counts=[1])
        got = await reader.fetch(handle, [0])
        assert got["error"] == "IncompatibleError"
        assert all(name in got["message"] for name in ("kv_heads=4", "over 4 devices", "kv_heads=8", "over 2 devices"))
