"""Pull requests that cannot work, and settling that overtakes its pull."""

from collections.abc import AsyncIterator

import pytest

from halfmoon.errors import IncompatibleError, InvalidRequestError, TransferError
from halfmoon.v1 import kvtransfer_pb2 as pb
from halfmoon.wire import geometry_to_pb
from kvtransfer.core.block_queue import Lane
from kvtransfer.core.pool import BlockOwner, Use
from kvtransfer.plane.context import PlaneContext
from kvtransfer.plane.host_blocks import HostBlocks
from kvtransfer.plane.peers import PeerBook
from kvtransfer.plane.pulls import PullBook
from kvtransfer.region import Region
from tests.kvtransfer.planes import GEOMETRY, plane_spec

SPEC = plane_spec("reader", 2, host_blocks=4)


@pytest.fixture
async def context() -> AsyncIterator[PlaneContext]:
    region = Region.create(SPEC.layout.total_bytes)
    made = PlaneContext(SPEC, region, HostBlocks(SPEC), PeerBook(SPEC, region))
    yield made
    await made.peers.close()
    made.blocks.check()
    region.close()


def request(*indices: int, pull_id: int = 5) -> pb.PullRequest:
    blocks = [pb.KvBlock(tokens=16, offset=SPEC.layout.offset(i), length=GEOMETRY.block_bytes) for i in range(3)]
    handle = pb.KvHandle(
        handle_id=bytes(16), model_fingerprint="model", geometry=geometry_to_pb(GEOMETRY), blocks=blocks
    )
    return pb.PullRequest(handle=handle, block_indices=indices, timeout_ms=1000, pull_id=pull_id)


@pytest.mark.parametrize("indices", [(3,), (1, 0), (1, 1)])
async def test_indices_are_ascending_and_inside_the_handle(context: PlaneContext, indices: tuple[int, ...]) -> None:
    with pytest.raises(InvalidRequestError):
        PullBook(context).start(request(*indices))


async def test_a_pull_needs_an_id(context: PlaneContext) -> None:
    with pytest.raises(InvalidRequestError):
        PullBook(context).start(request(0, pull_id=0))


async def test_blocks_of_another_size_or_region_are_refused(context: PlaneContext) -> None:
    short, elsewhere, unsummed, model = request(0), request(0), request(0), request(0)
    short.handle.blocks[0].length -= 1
    elsewhere.handle.blocks[0].region = 1
    unsummed.handle.ready_count = 1
    model.handle.model_fingerprint = "other"
    for refused in (short, elsewhere, unsummed):
        with pytest.raises(TransferError):
            PullBook(context).start(refused)
    with pytest.raises(IncompatibleError):
        PullBook(context).start(model)


async def test_a_pull_that_was_settled_before_it_came_never_starts(context: PlaneContext) -> None:
    book = PullBook(context)
    assert await book.settle(5, []) == 0
    with pytest.raises(InvalidRequestError):
        book.start(request(0))
    assert book.active_count == 0


async def test_settling_returns_what_the_engine_did_not_keep(context: PlaneContext) -> None:
    delivered = BlockOwner(Use.DELIVERED, 5)
    places = await context.blocks.acquire(delivered, Lane.PULL, 4, 4, float("inf"))
    context.delivered.update({place: 10 + place for place in places})
    book = PullBook(context)
    assert await book.settle(5, [10 + places[0]]) == 3
    assert await book.settle(5, [10 + places[0]]) == 0
    book.free([SPEC.layout.offset(places[0])])
    assert not context.delivered
    assert context.blocks.used_count == 0


async def test_a_place_that_was_freed_and_filled_again_unseen_is_not_mistaken_for_the_block_kept(
    context: PlaneContext,
) -> None:
    delivered = BlockOwner(Use.DELIVERED, 5)
    (place,) = await context.blocks.acquire(delivered, Lane.PULL, 1, 1, float("inf"))
    context.delivered[place] = 2
    assert await PullBook(context).settle(5, [1]) == 1
    assert context.blocks.used_count == 0


@pytest.mark.parametrize("offsets", [[0], [1], [1 << 40]])
async def test_only_delivered_blocks_can_be_freed(context: PlaneContext, offsets: list[int]) -> None:
    with pytest.raises(InvalidRequestError):
        PullBook(context).free(offsets)


async def test_a_pull_whose_first_step_never_came_is_counted_as_cancelled(context: PlaneContext) -> None:
    book = PullBook(context)
    pull = book.start(request(0))
    await book.settle(5, [])
    assert [event async for event in pull.events()] == []
    assert context.meters.ended == {"CANCELLED": 1}
    assert book.active_count == 0
