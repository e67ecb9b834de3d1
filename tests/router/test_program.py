"""The router as a program: starting, metrics, its log line, stopping."""

import asyncio
import logging
import urllib.request
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from halfmoon.errors import ConfigError, ModelError
from halfmoon.rpc import open_channel
from router import RouterConfig, RouterProgram, run_router
from tests.router.cluster import running
from tests.router.tiny_text import CONTEXT, tiny_text


async def test_a_router_is_serving_once_started_and_stops_twice_without_harm() -> None:
    program = RouterProgram(RouterConfig(Path("tiny"), metrics_port=0), tiny_text())
    await program.start()
    channel = open_channel(f"127.0.0.1:{program.port}")
    answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    url = f"http://127.0.0.1:{program.metrics_port}/metrics"
    body = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=5).read())
    assert b"halfmoon_router_requests_running 0" in body
    assert b"halfmoon_router_requests_waiting 0" in body
    await channel.close()
    await program.stop(0)
    await program.stop(0)


async def test_a_context_past_the_models_own_is_refused() -> None:
    program = RouterProgram(RouterConfig(Path("tiny"), max_model_len=CONTEXT + 1), tiny_text())
    with pytest.raises(ConfigError, match=str(CONTEXT)):
        await program.start()
    await program.stop(0)


async def test_a_model_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    program = RouterProgram(RouterConfig(tmp_path / "nothing"))
    with pytest.raises(ModelError, match="nothing"):
        await program.start()
    await program.stop(0)


async def test_a_port_in_use_is_one_clear_line() -> None:
    first = RouterProgram(RouterConfig(Path("tiny")), tiny_text())
    await first.start()
    second = RouterProgram(RouterConfig(Path("tiny"), port=first.port), tiny_text())
    with pytest.raises(ConfigError, match=str(first.port)):
        await second.start()
    await second.stop(0)
    await first.stop(0)


async def test_run_router_passes_on_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        await run_router(RouterConfig(tmp_path / "nothing"), asyncio.Event())


async def test_every_request_ends_in_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "router"):
        async with running("p0", "d0") as cluster:
            await cluster.send(cluster.call(request_id="good"))
            await cluster.send(cluster.call(request_id="bad", n=500))
    lines = [vars(record) for record in caplog.records if record.getMessage() == "request ended"]
    good, bad = lines
    assert (good["request_id"], good["outcome"], good["finish"]) == ("good", "ok", "stop")
    assert (good["prefill"], good["decode"], good["plan"]) == ("p0", "d0", "split")
    assert (good["prompt_tokens"], good["completion_tokens"]) == (73, 12)
    assert 0 < good["ttft"] <= good["seconds"]
    assert (bad["request_id"], bad["outcome"]) == ("bad", "invalid_request")
    assert "n is bounded" in bad["error"]
