"""What an owner says to a reader that introduces itself, and which transport the reader takes."""

from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import grpc
import pytest

from halfmoon.errors import IncompatibleError, LeaseExpiredError, StaleIncarnationError
from halfmoon.rpc import GrpcServer, error_from_rpc, open_channel
from halfmoon.v1 import kvtransfer_pb2 as pb
from halfmoon.v1 import kvtransfer_pb2_grpc as rpc
from halfmoon.wire import geometry_to_pb
from kvtransfer.plane.host import boot_id
from kvtransfer.plane.host_blocks import HostBlocks
from kvtransfer.plane.owner import Owner
from kvtransfer.plane.peer_service import PeerService
from kvtransfer.plane.prefix_store import PrefixStore
from kvtransfer.region import Region
from kvtransfer.transports.choice import usable
from tests.kvtransfer.planes import GEOMETRY, plane_spec

SPEC = plane_spec("owner", 7)
ADDRESSES = {"shm": "/nowhere/shm.sock", "tcp": "127.0.0.1:9"}


@pytest.fixture
async def stub() -> AsyncIterator["rpc.KvTransferAsyncStub"]:
    """The service of an owner, called over a real channel."""
    region = Region.create(SPEC.layout.total_bytes)
    server = GrpcServer()
    blocks = HostBlocks(SPEC)
    store = PrefixStore(SPEC, region, blocks, [])
    service = PeerService(SPEC, Owner(SPEC, region, blocks), store, ADDRESSES, lambda: "127.0.0.1:9")
    server.add(rpc.add_KvTransferServicer_to_server, service, "halfmoon.v1.KvTransfer")
    await server.start()
    async with open_channel(f"127.0.0.1:{server.port}") as channel:
        made: rpc.KvTransferAsyncStub = rpc.KvTransferStub(channel)
        yield made
    await server.stop()
    region.close()


def hello(**changes: object) -> pb.HelloRequest:
    request = pb.HelloRequest(
        worker_id="reader",
        incarnation=8,
        boot_id=boot_id(),
        expected_incarnation=7,
        model_fingerprint="model",
        geometry=geometry_to_pb(GEOMETRY),
        transports=["tcp", "smoke", "shm"],
    )
    for field, value in changes.items():
        setattr(request, field, value)
    return request


async def refusal(call: Awaitable[object]) -> Exception:
    """The domain error that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return error_from_rpc(caught.value)


async def test_both_sides_transports_are_listed_in_the_readers_order(stub: "rpc.KvTransferAsyncStub") -> None:
    response = await stub.Hello(hello())
    assert [endpoint.name for endpoint in response.transports] == ["tcp", "shm"]
    assert (response.worker_id, response.incarnation, response.region_bytes) == ("owner", 7, SPEC.layout.total_bytes)


async def test_shared_memory_is_for_the_same_host_alone(stub: "rpc.KvTransferAsyncStub") -> None:
    response = await stub.Hello(hello(boot_id="another machine"))
    assert [endpoint.name for endpoint in response.transports] == ["tcp"]


async def test_any_incarnation_will_do_for_a_reader_that_names_none(stub: "rpc.KvTransferAsyncStub") -> None:
    assert (await stub.Hello(hello(expected_incarnation=0))).incarnation == 7


async def test_another_incarnation_model_or_geometry_is_refused_with_both_named(
    stub: "rpc.KvTransferAsyncStub",
) -> None:
    stale = await refusal(stub.Hello(hello(expected_incarnation=9)))
    assert isinstance(stale, StaleIncarnationError)
    assert "incarnation 9, this is 7" in str(stale)
    model = await refusal(stub.Hello(hello(model_fingerprint="other")))
    assert isinstance(model, IncompatibleError)
    assert "model is other, the owner's is model" in str(model)
    request = hello()
    request.geometry.page_size = 64
    shape = await refusal(stub.Hello(request))
    assert isinstance(shape, IncompatibleError)
    assert "page_size=64" in str(shape)
    assert "page_size=16" in str(shape)


async def test_calls_under_another_incarnation_are_refused(stub: "rpc.KvTransferAsyncStub") -> None:
    renewed = await refusal(stub.Renew(pb.RenewRequest(handle_id=bytes(16), expected_incarnation=8)))
    assert isinstance(renewed, StaleIncarnationError)
    watched = await refusal(anext(aiter(stub.Watch(pb.WatchRequest(handle_id=bytes(16), expected_incarnation=8)))))
    assert isinstance(watched, StaleIncarnationError)


async def test_an_unknown_handle_can_be_released_but_not_renewed_or_watched(stub: "rpc.KvTransferAsyncStub") -> None:
    assert not (await stub.Release(pb.ReleaseRequest(handle_id=bytes(16)))).released
    renewed = await refusal(stub.Renew(pb.RenewRequest(handle_id=bytes(16), expected_incarnation=7)))
    assert isinstance(renewed, LeaseExpiredError)
    watched = await refusal(anext(aiter(stub.Watch(pb.WatchRequest(handle_id=bytes(16), expected_incarnation=7)))))
    assert isinstance(watched, LeaseExpiredError)


def endpoints(**addresses: str) -> list[pb.TransportEndpoint]:
    return [pb.TransportEndpoint(name=name, address=address) for name, address in addresses.items()]


def test_a_socket_that_is_not_here_leaves_the_other_transports(tmp_path: Path) -> None:
    unreachable = str(tmp_path / "shm.sock")
    assert [each.name for each in usable(endpoints(shm=unreachable, tcp="127.0.0.1:9"))] == ["tcp"]


def test_no_usable_transport_is_refused_with_what_was_offered_and_why(tmp_path: Path) -> None:
    with pytest.raises(IncompatibleError, match=r"\['shm', 'smoke'\].* is not here; smoke is unknown"):
        usable(endpoints(shm=str(tmp_path / "shm.sock"), smoke="x"))
