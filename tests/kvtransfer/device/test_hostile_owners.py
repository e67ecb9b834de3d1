"""What an owner says is checked before anything is pulled: a pull of another size would end the reader's process."""

from collections.abc import AsyncIterator
from contextlib import aclosing

import jax
import pytest

from halfmoon.config import PageGeometry
from halfmoon.errors import DeadlineError, HalfmoonError, IncompatibleError, StaleIncarnationError, TransferError
from halfmoon.rpc import GrpcServer
from halfmoon.v1 import devicetransfer_pb2 as pb
from halfmoon.v1 import devicetransfer_pb2_grpc as rpc
from halfmoon.v1 import kvtransfer_pb2
from kvtransfer.device import DeviceLayout, DeviceLink, DeviceReader, DeviceSpec, Placement
from kvtransfer.device.layout import layout_to_pb
from kvtransfer.rpc_types import Context

GEOMETRY = PageGeometry(layers=1, kv_heads=2, page_size=8, head_dim=4, dtype="float32")
LAYOUT = DeviceLayout(GEOMETRY, 1, (1, 4))
INCARNATION = 7
HASHES = [1]


def welcome(**changes: object) -> pb.FetchResponse:
    fields: dict[str, object] = {"incarnation": INCARNATION, "layout": layout_to_pb(LAYOUT), **changes}
    return pb.FetchResponse(welcome=pb.FetchWelcome(**fields))  # type: ignore[arg-type]


def grant(**changes: object) -> pb.FetchResponse:
    fields: dict[str, object] = {"grant_id": 5, "pages": 1, "hashes": HASHES, "ttl_ms": 300, **changes}
    return pb.FetchResponse(grant=pb.FetchGrant(**fields))  # type: ignore[arg-type]


class Owner(rpc.DeviceTransferServicer):
    """Says what it is told to say."""

    def __init__(self) -> None:
        self.says: list[pb.FetchResponse] = []

    async def Fetch(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.FetchRequest], context: Context
    ) -> AsyncIterator[pb.FetchResponse]:
        """Listens to the first message alone."""
        await anext(aiter(request_iterator))
        for response in self.says:
            yield response


@pytest.fixture(scope="module")
def link() -> DeviceLink:
    return DeviceLink("127.0.0.1")


class Reading:
    """A reader beside an owner that it must not trust."""

    def __init__(self, owner: Owner, reader: DeviceReader, endpoint: str) -> None:
        self.reader = reader
        self._owner = owner
        self._endpoint = endpoint

    async def refused(self, *says: pb.FetchResponse) -> HalfmoonError:
        """The error of a fetch of two blocks."""
        self._owner.says = list(says)
        handle = kvtransfer_pb2.KvHandle(
            handle_id=bytes(16),
            owner_incarnation=INCARNATION,
            device_endpoint=self._endpoint,
            blocks=[kvtransfer_pb2.KvBlock(tokens=8)] * 2,
        )
        with pytest.raises(HalfmoonError) as refusal:
            await self._fetch(handle)
        assert self.reader.fetch_count == 0
        return refusal.value

    async def _fetch(self, handle: kvtransfer_pb2.KvHandle) -> None:
        async with aclosing(self.reader.fetch(handle, [0, 1], 5.0)) as fetched:
            async for _ in fetched:
                pass


@pytest.fixture
async def reading(link: DeviceLink) -> AsyncIterator[Reading]:
    owner, server = Owner(), GrpcServer()
    server.add(rpc.add_DeviceTransferServicer_to_server, owner, "halfmoon.v1.DeviceTransfer")
    await server.start()
    spec = DeviceSpec("reader", 1, "model", LAYOUT)
    reader = DeviceReader(spec, link, Placement(LAYOUT, jax.local_devices()))
    yield Reading(owner, reader, f"127.0.0.1:{server.port}")
    await server.stop()


@pytest.mark.parametrize(
    "bad",
    [
        {"pages": 2},
        {"pages": 1 << 30},
        {"pages": 0},
        {"hashes": []},
        {"hashes": [1, 2]},
        {"first_block": 2},
        {"pages": 4, "hashes": [1, 2, 3]},
    ],
)
async def test_a_grant_that_does_not_fit_is_refused_before_anything_is_pulled(
    reading: Reading, bad: dict[str, object]
) -> None:
    error = await reading.refused(welcome(), grant(**bad))
    assert isinstance(error, TransferError)
    assert error.message.startswith("a grant of")


async def test_a_grant_that_nobody_gave_costs_its_time_and_no_more(reading: Reading, link: DeviceLink) -> None:
    assert isinstance(await reading.refused(welcome(address=link.address), grant()), DeadlineError)


@pytest.mark.parametrize("says", [[], [grant()], [welcome()], [welcome(), welcome()]])
async def test_messages_out_of_turn_are_refused(reading: Reading, says: list[pb.FetchResponse]) -> None:
    assert isinstance(await reading.refused(*says), TransferError)


async def test_another_process_or_another_layout_is_refused(reading: Reading) -> None:
    assert isinstance(await reading.refused(welcome(incarnation=8)), StaleIncarnationError)
    other = DeviceLayout(GEOMETRY, 1, (1, 16))
    error = await reading.refused(welcome(layout=layout_to_pb(other)))
    assert isinstance(error, IncompatibleError)
    assert str(other) in error.message
    assert str(LAYOUT) in error.message
