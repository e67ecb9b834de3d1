"""The server wrapper over real sockets: errors, health, reflection, streams and stopping."""

# ruff: noqa: N802 - methods are named by the protos

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from halfmoon.config import MAX_MESSAGE_BYTES
from halfmoon.errors import (
    CancelledError,
    ConfigError,
    DeadlineError,
    HalfmoonError,
    IncompatibleError,
    InternalError,
    InvalidRequestError,
    OverloadedError,
    StaleIncarnationError,
    UnavailableError,
    WorkerFailedError,
)
from halfmoon.rpc import GrpcServer, error_from_rpc, open_channel
from halfmoon.v1 import decode_pb2, decode_pb2_grpc

NAME = "halfmoon.v1.Decode"


class ScriptedDecode(decode_pb2_grpc.DecodeServicer):
    """Raises what it is told to; its stream notes when it was closed."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.closed = asyncio.Event()

    async def StopChoices(
        self, request: decode_pb2.StopChoicesRequest, context: object
    ) -> decode_pb2.StopChoicesResponse:
        if self.error is not None:
            raise self.error
        return decode_pb2.StopChoicesResponse(stopped=len(request.request_id))

    async def Generate(
        self, request: decode_pb2.DecodeRequest, context: object
    ) -> AsyncIterator[decode_pb2.DecodeResponse]:
        try:
            yield decode_pb2.DecodeResponse(accepted=decode_pb2.DecodeAccepted())
            if self.error is not None:
                raise self.error
            while True:
                yield decode_pb2.DecodeResponse(tokens=decode_pb2.DecodeTokens())
                await asyncio.sleep(0.001)
        finally:
            await asyncio.sleep(0)
            self.closed.set()


@asynccontextmanager
async def serving(servicer: ScriptedDecode) -> AsyncIterator[tuple[GrpcServer, grpc.aio.Channel]]:
    server = GrpcServer()
    server.add(decode_pb2_grpc.add_DecodeServicer_to_server, servicer, NAME)
    await server.start()
    channel = open_channel(f"127.0.0.1:{server.port}")
    try:
        yield server, channel
    finally:
        await channel.close()
        await server.stop()


async def failure_of(channel: grpc.aio.Channel) -> HalfmoonError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await decode_pb2_grpc.DecodeStub(channel).StopChoices(decode_pb2.StopChoicesRequest(request_id="hi"), timeout=5)
    return error_from_rpc(caught.value)


async def drain(
    call: grpc.aio.UnaryStreamCall[decode_pb2.DecodeRequest, decode_pb2.DecodeResponse],
) -> tuple[int, HalfmoonError | None]:
    """How many responses came, and the error after them."""
    count = 0
    try:
        async for _ in call:
            count += 1
    except grpc.aio.AioRpcError as error:
        return count, error_from_rpc(error)
    return count, None


@pytest.mark.parametrize(
    "error",
    [
        InvalidRequestError("temperature is -1, must be 0 or more", param="temperature"),
        OverloadedError("full", retry_after=1.5),
        StaleIncarnationError("another process"),
        WorkerFailedError("worker d0 failed"),
        CancelledError("aborted"),
    ],
)
async def test_domain_errors_arrive_as_they_were_raised(error: HalfmoonError) -> None:
    servicer = ScriptedDecode()
    servicer.error = error
    async with serving(servicer) as (_, channel):
        got = await failure_of(channel)
        assert type(got) is type(error)
        assert (got.message, got.param, got.retry_after) == (error.message, error.param, error.retry_after)


async def test_a_bug_is_internal_and_its_traceback_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    servicer = ScriptedDecode()
    servicer.error = KeyError("some secret detail")
    async with serving(servicer) as (_, channel):
        with caplog.at_level(logging.ERROR):
            got = await failure_of(channel)
    assert type(got) is InternalError
    assert "KeyError" in got.message
    assert "secret" not in got.message
    assert any(record.exc_info and "secret" in str(record.exc_info[1]) for record in caplog.records)


async def test_an_error_in_mid_stream_follows_what_was_sent() -> None:
    servicer = ScriptedDecode()
    servicer.error = OverloadedError("no more")
    async with serving(servicer) as (server, channel):
        count, error = await drain(decode_pb2_grpc.DecodeStub(channel).Generate(decode_pb2.DecodeRequest()))
        assert count == 1
        assert isinstance(error, OverloadedError)
        assert servicer.closed.is_set()
        async with asyncio.timeout(2):
            while server.active_calls:  # noqa: ASYNC110 - the caller may hear of the end before it is counted
                await asyncio.sleep(0.001)


async def test_a_very_long_message_still_arrives_as_its_error() -> None:
    servicer = ScriptedDecode()
    servicer.error = InvalidRequestError("x" * 100_000, param="prompt")
    async with serving(servicer) as (_, channel):
        got = await failure_of(channel)
        assert type(got) is InvalidRequestError
        assert got.param == "prompt"


async def test_cancelling_a_stream_closes_its_handler() -> None:
    servicer = ScriptedDecode()
    async with serving(servicer) as (server, channel):
        call = decode_pb2_grpc.DecodeStub(channel).Generate(decode_pb2.DecodeRequest())
        await call.read()
        assert server.active_calls == 1
        call.cancel()
        await asyncio.wait_for(servicer.closed.wait(), 1)
        await asyncio.sleep(0.01)
        assert server.active_calls == 0


async def test_a_deadline_is_a_deadline_error_and_closes_the_handler() -> None:
    servicer = ScriptedDecode()
    async with serving(servicer) as (_, channel):
        stub = decode_pb2_grpc.DecodeStub(channel)
        _, error = await drain(stub.Generate(decode_pb2.DecodeRequest(), timeout=0.1))
        assert isinstance(error, DeadlineError)
        await asyncio.wait_for(servicer.closed.wait(), 1)


async def test_nobody_at_the_address_is_unavailable_at_once() -> None:
    server = GrpcServer()
    await server.start()
    port = server.port
    await server.stop()
    channel = open_channel(f"127.0.0.1:{port}")
    begin = time.monotonic()
    assert isinstance(await failure_of(channel), UnavailableError)
    assert time.monotonic() - begin < 2
    await channel.close()


async def test_a_method_that_the_peer_lacks_is_incompatible() -> None:
    server = GrpcServer()
    await server.start()
    channel = open_channel(f"127.0.0.1:{server.port}")
    assert isinstance(await failure_of(channel), IncompatibleError)
    await channel.close()
    await server.stop()


async def test_a_channel_finds_a_peer_that_came_back() -> None:
    first = GrpcServer()
    first.add(decode_pb2_grpc.add_DecodeServicer_to_server, ScriptedDecode(), NAME)
    await first.start()
    port = first.port
    channel = open_channel(f"127.0.0.1:{port}")
    stub = decode_pb2_grpc.DecodeStub(channel)
    await stub.StopChoices(decode_pb2.StopChoicesRequest(request_id="hi"), timeout=5)
    await first.stop()
    assert isinstance(await failure_of(channel), UnavailableError)
    second = GrpcServer(port=port)
    second.add(decode_pb2_grpc.add_DecodeServicer_to_server, ScriptedDecode(), NAME)
    await second.start()
    begin = time.monotonic()
    await stub.StopChoices(decode_pb2.StopChoicesRequest(request_id="hi"), timeout=5, wait_for_ready=True)
    assert time.monotonic() - begin < 3
    await channel.close()
    await second.stop()


async def test_health_follows_the_program() -> None:
    async with serving(ScriptedDecode()) as (server, channel):
        stub = health_pb2_grpc.HealthStub(channel)

        async def answers() -> list["health_pb2.HealthCheckResponse.ServingStatus.ValueType"]:
            requests = [health_pb2.HealthCheckRequest(service=service) for service in ("", NAME)]
            return [(await stub.Check(request)).status for request in requests]

        assert await answers() == [health_pb2.HealthCheckResponse.NOT_SERVING] * 2
        await server.set_serving(True)
        assert await answers() == [health_pb2.HealthCheckResponse.SERVING] * 2
        await server.set_serving(False)
        assert await answers() == [health_pb2.HealthCheckResponse.NOT_SERVING] * 2


async def test_reflection_lists_our_services() -> None:
    async with serving(ScriptedDecode()) as (_, channel):
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
        names = [service.name async for response in call for service in response.list_services_response.service]
        assert NAME in names
        assert "grpc.health.v1.Health" in names


async def test_messages_up_to_the_bound_pass() -> None:
    async with serving(ScriptedDecode()) as (_, channel):
        text = "x" * (MAX_MESSAGE_BYTES // 2)
        answer = await decode_pb2_grpc.DecodeStub(channel).StopChoices(
            decode_pb2.StopChoicesRequest(request_id=text), timeout=20
        )
        assert answer.stopped == len(text)


async def test_a_port_in_use_is_a_config_error_that_names_it() -> None:
    async with serving(ScriptedDecode()) as (server, _):
        with pytest.raises(ConfigError, match=str(server.port)):
            await GrpcServer(port=server.port).start()


async def test_stopping_waits_for_calls_under_way_but_no_longer_than_the_grace() -> None:
    servicer = ScriptedDecode()
    async with serving(servicer) as (server, channel):
        call = decode_pb2_grpc.DecodeStub(channel).Generate(decode_pb2.DecodeRequest())
        await call.read()
        begin = time.monotonic()
        await server.stop(0.3)
        assert 0.25 < time.monotonic() - begin < 2
        assert servicer.closed.is_set()
        call.cancel()


async def test_stopping_an_idle_server_does_not_wait() -> None:
    async with serving(ScriptedDecode()) as (server, channel):
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        await watch.read()
        begin = time.monotonic()
        await server.stop(10)
        assert time.monotonic() - begin < 1
        watch.cancel()


@pytest.mark.parametrize("method", ["StopChoices", "Generate"])
async def test_bytes_that_are_no_message_are_an_invalid_request(method: str, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(ScriptedDecode()) as (_, channel):
        stub: grpc.aio.UnaryStreamMultiCallable[bytes, object] = channel.unary_stream(f"/{NAME}/{method}", _as_it_is)
        call = stub(b"\xff\xff\xff", timeout=5)
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await call.read()
    assert isinstance(error_from_rpc(failed.value), InvalidRequestError)
    assert caplog.records == []


def _as_it_is(data: bytes) -> bytes:
    return data
