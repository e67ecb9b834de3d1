"""Tokenize, Detokenize, ListModels, ListWorkers, and workers that come and go."""

import grpc
import pytest

from halfmoon.cache.hashing import cache_salt, page_hashes
from halfmoon.config import PageGeometry
from halfmoon.errors import HalfmoonError, IncompatibleError, InvalidRequestError, ModelNotFoundError
from halfmoon.rpc import error_from_rpc
from halfmoon.v1 import router_pb2
from halfmoon.wire import geometry_to_pb
from tests.router.cluster import Cluster, running, until
from tests.router.fakes import GEOMETRY
from tests.router.tiny_text import CONTEXT, END, FINGERPRINT, VOCAB, byte_ids


async def test_tokenize_and_detokenize_are_each_others_reverse() -> None:
    async with running() as cluster:
        tokens = await cluster.stub.Tokenize(router_pb2.TokenizeRequest(text="hé"))
        assert list(tokens.token_ids) == byte_ids("hé")
        assert tokens.max_model_len == CONTEXT
        text = await cluster.stub.Detokenize(router_pb2.DetokenizeRequest(token_ids=[*tokens.token_ids, END]))
        assert text.text == "hé<|end|>"


async def test_tokenize_renders_chat() -> None:
    async with running() as cluster:
        chat = router_pb2.ChatPrompt(
            messages=[router_pb2.ChatMessage(role="user", content="x")], no_generation_prompt=True
        )
        tokens = await cluster.stub.Tokenize(router_pb2.TokenizeRequest(chat=chat))
        assert list(tokens.token_ids) == [257, *byte_ids("user:x"), 258]


async def test_the_model_is_ready_when_a_worker_can_decode() -> None:
    async with running("p0") as cluster:
        assert await ready(cluster) is False
        await cluster.add("d0")
        assert await ready(cluster) is True
        await cluster.workers["d0"].die()
        await until(lambda: 'halfmoon_router_workers{role="decode"' not in cluster.program.metrics.render().decode())
        assert await ready(cluster) is False


async def test_a_model_says_what_it_is() -> None:
    async with running() as cluster:
        (model,) = (await cluster.stub.ListModels(router_pb2.ListModelsRequest())).models
        assert (model.name, model.max_model_len, model.fingerprint) == ("tiny", CONTEXT, FINGERPRINT)
        assert model.vocab_size == VOCAB
        assert model.created > 1_700_000_000


async def test_workers_are_listed_and_gone_once_stopped() -> None:
    async with running("p0", "d0") as cluster:
        listed = await cluster.registry.ListWorkers(router_pb2.ListWorkersRequest())
        assert [status.info.worker_id for status in listed.workers] == ["d0", "p0"]
        assert listed.workers[0].info.state == router_pb2.WORKER_STATE_READY
        assert listed.workers[0].info.role == router_pb2.WORKER_ROLE_DECODE
        assert listed.workers[0].info.geometry == geometry_to_pb(GEOMETRY)
        await cluster.workers["d0"].stop()
        listed = await cluster.registry.ListWorkers(router_pb2.ListWorkersRequest())
        assert [status.info.worker_id for status in listed.workers] == ["p0"]


async def test_another_model_or_geometry_is_refused_with_both_named() -> None:
    async with running("d0") as cluster:
        other = PageGeometry(layers=2, kv_heads=1, page_size=32, head_dim=4, dtype="float32")
        model = await refusal(cluster, fingerprint="f" * 32, geometry=GEOMETRY)
        assert isinstance(model, IncompatibleError)
        assert "f" * 32 in model.message
        assert FINGERPRINT in model.message
        geometry = await refusal(cluster, fingerprint=FINGERPRINT, geometry=other)
        assert isinstance(geometry, IncompatibleError)
        assert "page_size=32" in geometry.message
        assert "page_size=16" in geometry.message


async def test_other_models_and_bad_ids_are_refused() -> None:
    async with running() as cluster:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await cluster.stub.Tokenize(router_pb2.TokenizeRequest(model="other", text="x"))
        assert isinstance(error_from_rpc(caught.value), ModelNotFoundError)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await cluster.stub.Detokenize(router_pb2.DetokenizeRequest(token_ids=[VOCAB]))
        assert isinstance(error_from_rpc(caught.value), InvalidRequestError)


async def test_cached_pages_that_a_worker_reports_attract_its_prompts() -> None:
    async with running("b0", "b1") as cluster:
        await cluster.ask("x" * 100)
        first = next(worker for worker in cluster.workers.values() if worker.decodes)
        other = next(worker for worker in cluster.workers.values() if not worker.decodes)
        other.stored = page_hashes_of("y" * 100)
        await until(lambda: cluster.metric("halfmoon_router_prefix_pages") == 6)
        for _ in range(3):
            await cluster.ask("y" * 100)
        assert len(other.decodes) == 3
        assert len(first.decodes) == 1


def page_hashes_of(text: str) -> list[bytes]:
    salt = cache_salt(FINGERPRINT, GEOMETRY.dtype, GEOMETRY.page_size)
    return page_hashes(salt, byte_ids(text), GEOMETRY.page_size)


async def ready(cluster: Cluster) -> bool:
    return (await cluster.stub.ListModels(router_pb2.ListModelsRequest())).models[0].ready


async def refusal(cluster: Cluster, *, fingerprint: str, geometry: PageGeometry) -> HalfmoonError:
    info = router_pb2.WorkerInfo(
        worker_id="new",
        incarnation=1,
        address="127.0.0.1:1",
        role=router_pb2.WORKER_ROLE_DECODE,
        model_fingerprint=fingerprint,
        geometry=geometry_to_pb(geometry),
        state=router_pb2.WORKER_STATE_READY,
        max_model_len=CONTEXT,
    )
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await cluster.registry.Register(router_pb2.RegisterRequest(worker=info))
    return error_from_rpc(caught.value)
