"""KV that must not be trusted or is no longer wanted: cases 5, 6, 7, 14 and 15 of the split server's faults."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from halfmoon.errors import TransferError
from halfmoon.v1 import kvtransfer_pb2
from tests.e2e import reference
from tests.e2e.clients import body, computed_anew, fresh_prompt, tokens_of, undisturbed
from tests.e2e.fleet import Fleet, serving
from tests.e2e.peers import (
    LyingOwner,
    Refuser,
    Relay,
    joined_decode,
    joined_prefill,
    serving_owner,
)
from tests.e2e.small import BLOCK_BYTES, PAGE_SIZE, SMALL_FLAGS, write_small_model
from tests.e2e.tiers import Tiers, last_news, release, tiers_of
from tests.kvtransfer.proxy import Fault

PROMPT = 400
INSIDE_A_BLOCK = BLOCK_BYTES // 2
"""A byte of the first block on a connection: what comes before it is short."""

SOON = 1.5
"""Seconds: one, and what the gauges of a data plane may be old."""

FLAGS = (*SMALL_FLAGS, "--split-threshold", "0", "--transports", "tcp")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One worker of each kind."""
    folder = tmp_path_factory.mktemp("transfer")
    with serving(folder, str(write_small_model(folder / "small")), *FLAGS) as fleet:
        yield fleet


@pytest.fixture
async def client(fleet: Fleet) -> AsyncIterator[httpx.AsyncClient]:
    """Speaks HTTP to it; afterwards nothing is left of what it asked."""
    async with httpx.AsyncClient(base_url=fleet.url) as client:
        yield client
    fleet.assert_at_rest(SOON)


@pytest.fixture
async def tiers(fleet: Fleet) -> AsyncIterator[Tiers]:
    """Speaks to the workers without the router."""
    async with tiers_of(fleet) as tiers:
        yield tiers


@pytest.mark.timeout(300)
async def test_bytes_that_come_after_an_abort_hit_nobody(fleet: Fleet, client: httpx.AsyncClient, tiers: Tiers) -> None:
    """Case 5: the abort stops a transfer in the middle of a block; the blocks are reused while the rest arrives."""
    request = body(fresh_prompt(PROMPT))
    relay = Relay(tiers.prefill_worker, fresh_prompt(PROMPT), Fault("hold", at=INSIDE_A_BLOCK))
    async with joined_prefill(fleet, relay), undisturbed(fleet):
        hanging = asyncio.create_task(tokens_of(client, body(relay.prompt)))
        await relay.holding()
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)
        answering = asyncio.create_task(tokens_of(client, request))
        relay.resume()
        answer = await answering
    assert answer == await computed_anew(client, request)


async def test_a_decode_worker_that_refuses_makes_prefill_release_at_once(
    fleet: Fleet, client: httpx.AsyncClient
) -> None:
    """Case 6: the router releases what decode never took, long before its lease runs out."""
    async with joined_decode(fleet, Refuser()) as refuser:
        refused = await client.post("/v1/completions", json=body(fresh_prompt(PROMPT)), timeout=60)
        fleet.assert_at_rest(SOON)
    assert refused.status_code == 429
    assert "no room here" in refused.json()["error"]["message"]
    assert refuser.refused == 1
    async with undisturbed(fleet):
        assert len(await tokens_of(client, body(fresh_prompt(PROMPT)))) == 16


async def test_blocks_reused_under_a_reader_give_it_an_error(
    fleet: Fleet, client: httpx.AsyncClient, tiers: Tiers
) -> None:
    """Case 7: the lease is over and other prompts use the blocks, while the reader is told that all is well."""
    prompt = fresh_prompt(PROMPT)
    first = await tiers.prefilled(prompt)
    news = await last_news(first.handle)
    assert await release(first.handle)
    other = await tiers.prefilled(fresh_prompt(PROMPT))
    async with undisturbed(fleet), serving_owner(LyingOwner(news)) as liar:
        await liar.take(first.handle)
        error = await tiers.refusal(prompt, first.handle)
    assert isinstance(error, TransferError)
    assert await release(other.handle)
    assert len(await tokens_of(client, body(prompt))) == 16


@pytest.mark.parametrize("kind", ["flip", "cut"])
async def test_a_transfer_in_doubt_is_not_used_and_the_prompt_is_prefilled_again(
    fleet: Fleet, client: httpx.AsyncClient, tiers: Tiers, kind: str
) -> None:
    """Case 7, and 1: a byte that changes on the way, or a connection that breaks in a block, is not seen by clients."""
    prompt = fresh_prompt(PROMPT)
    request = body(prompt)
    failed = fleet.total("decode", "halfmoon_kv_transfers_ended_total")
    relay = Relay(tiers.prefill_worker, prompt, Fault(kind, at=INSIDE_A_BLOCK))
    async with joined_prefill(fleet, relay), undisturbed(fleet):
        answer = await tokens_of(client, request)
    assert answer == await computed_anew(client, request)
    assert fleet.total("decode", "halfmoon_kv_transfers_ended_total") > failed


async def test_what_decode_has_already_is_not_moved_and_prefill_is_released_all_the_same(
    fleet: Fleet, client: httpx.AsyncClient
) -> None:
    """Case 14: the second time, decode holds every page of the prompt."""
    request = body(fresh_prompt(5 * PAGE_SIZE))
    first = await tokens_of(client, request)
    before = await _moved(fleet)
    again = await tokens_of(client, request)
    fleet.assert_at_rest(SOON)
    assert again == first
    assert await _moved(fleet) == before
    async with undisturbed(fleet):
        assert await tokens_of(client, request) == first


async def test_a_decode_worker_with_more_of_a_prompt_than_prefill_takes_the_rest_alone(
    fleet: Fleet, client: httpx.AsyncClient
) -> None:
    """Case 15: of a second turn, decode holds the pages of its own answer too, which prefill never saw."""
    prompt = fresh_prompt(100)
    answer = await tokens_of(client, body(prompt, 100))
    second = body([*prompt, *answer, *fresh_prompt(30)])
    before = await _moved(fleet)
    reply = await reference.complete(client, **second)
    assert await _moved(fleet) - before == BLOCK_BYTES
    assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] == PAGE_SIZE
    assert reply["choices"][0]["token_ids"] == await computed_anew(client, second)


@pytest.mark.parametrize("shift", [1, -1])
async def test_blocks_off_by_one_are_refused_by_what_they_hold(
    client: httpx.AsyncClient, tiers: Tiers, shift: int
) -> None:
    """Case 15: a handle whose blocks are those of the prompt, each at its neighbour's place."""
    prompt = fresh_prompt(5 * PAGE_SIZE)
    first = await tiers.prefilled(prompt)
    shifted = kvtransfer_pb2.KvHandle()
    shifted.CopyFrom(first.handle)
    blocks = [*first.handle.blocks[shift:], *first.handle.blocks[:shift]]
    del shifted.blocks[:]
    shifted.blocks.extend(blocks)
    assert isinstance(await tiers.refusal(prompt, shifted), TransferError)
    assert await tiers.decoded(prompt, first.handle) == (await tokens_of(client, body(prompt)))[1:]


async def _moved(fleet: Fleet) -> float:
    """Bytes of KV that decode has read, when the gauges are fresh."""
    await asyncio.sleep(1)
    return fleet.total("decode", "halfmoon_kv_bytes_read_total")
