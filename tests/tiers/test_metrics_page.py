"""`docs/metrics.md` lists what the programs show, no more and no less: names, types and labels."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from cli.worker_devices import watch_devices
from cli.worker_metrics import PlaneWatch, watch_engine, watch_store
from halfmoon.runner.runner import Runner
from halfmoon.telemetry import Metrics
from tests.telemetry.metrics_page import Documented, documented
from tests.tiers.fleet import http_front
from tests.tiers.workers import worker

VLLM = "Under vLLM's names"
COMPILATIONS = "halfmoon_worker_compilations_after_ready"


@dataclass(frozen=True)
class Shown:
    """What each kind of program shows after some requests: its catalogue, and its page of metrics."""

    kinds: dict[str, dict[str, str]]
    pages: dict[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown(runners: tuple[Runner, Runner], tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shown]:
    """A fleet that has served one request and refused one; the decode worker keeps pages in memory and on disk."""
    disk = tmp_path_factory.mktemp("pages")
    async with (
        worker(runners[0], role="prefill", with_devices=True) as prefill,
        worker(runners[1], role="decode", store_blocks=8, disk_folder=disk, with_devices=True) as decode,
    ):
        workers = Metrics("decode")
        workers.show_vllm_names(lambda: "small")
        watch_engine(workers, decode.engine, decode.gate)
        watch = PlaneWatch(workers, decode.plane)
        assert decode.store is not None
        watch_store(workers, decode.store)
        assert decode.devices is not None
        watch_devices(workers, decode.devices)
        async with http_front(runners[0].config.geometry, p0=prefill, d0=decode) as front:
            body = {"prompt": "x" * 40, "max_tokens": 4, "ignore_eos": True, "logit_bias": {"65": 100}}
            assert (await front.http.post("/v1/completions", json=body)).status_code == 200
            assert (await front.http.post("/v1/completions", json={**body, "model": "other"})).status_code == 404
            await watch.refresh()
            gateway = (await front.http.get("/metrics")).text
            pages = {
                "Gateway": gateway,
                "Router": front.router.metrics.render().decode(),
                "Workers": workers.render().decode(),
            }
            kinds = {"Gateway": front.gateway_metrics.kinds, "Router": front.router.metrics.kinds}
            yield Shown({**kinds, "Workers": workers.kinds}, pages)
        await watch.close()


@pytest.mark.parametrize("section", ["Gateway", "Router", "Workers"])
@pytest.mark.asyncio(loop_scope="module")
async def test_every_metric_is_on_the_page_and_nothing_else_is(shown: Shown, section: str) -> None:
    expected = {name: row.kind for name, row in documented(section).items()}
    assert expected.pop(COMPILATIONS, "gauge") == "gauge"
    assert shown.kinds[section] == expected


def test_the_compilations_are_counted_where_the_engine_is_loaded() -> None:
    """The one metric of workers that takes a whole compilation to come into being."""
    source = Path("cli/worker_engine.py")
    assert f'"{COMPILATIONS}"' in (Path(__file__).parents[2] / source).read_text()


@pytest.mark.parametrize("section", ["Gateway", "Router", "Workers"])
@pytest.mark.asyncio(loop_scope="module")
async def test_every_label_is_on_the_page(shown: Shown, section: str) -> None:
    rows = documented(section)
    labels = {name: found for name, found in _labels(shown.pages[section]).items() if not name.startswith("vllm:")}
    assert len(labels) > len(rows) / 2
    assert labels == {name: rows[name].labels for name in labels}


@pytest.mark.asyncio(loop_scope="module")
async def test_vllm_names_are_on_the_page_and_each_is_shown_by_one_kind_of_program(shown: Shown) -> None:
    gateway, workers = _vllm(shown.pages["Gateway"]), _vllm(shown.pages["Workers"])
    assert gateway.keys().isdisjoint(workers)
    assert gateway | workers == documented(VLLM)
    assert not _vllm(shown.pages["Router"])


@pytest.mark.asyncio(loop_scope="module")
async def test_vllm_names_show_the_same_values(shown: Shown) -> None:
    gateway, workers = shown.pages["Gateway"].splitlines(), shown.pages["Workers"].splitlines()
    for line in (
        'vllm:generation_tokens_total{engine="0",model_name="small"} 4.0',
        'vllm:prompt_tokens_total{engine="0",model_name="small"} 40.0',
        'vllm:inter_token_latency_seconds_count{engine="0",model_name="small"} 3.0',
        'vllm:time_to_first_token_seconds_count{engine="0",model_name="small"} 1.0',
        'vllm:e2e_request_latency_seconds_bucket{engine="0",le="+Inf",model_name="small"} 1.0',
        'vllm:request_success_total{engine="0",finished_reason="length",model_name="small"} 1.0',
        'vllm:num_requests_running{engine="0",model_name="small"} 0.0',
    ):
        assert line in gateway
    assert 'vllm:kv_cache_usage_perc{engine="0",model_name="small"} 0.0' in workers


def _vllm(page: str) -> dict[str, Documented]:
    families = {family.name: family.type for family in text_string_to_metric_families(page)}
    names = {name: name + ("_total" if kind == "counter" else "") for name, kind in families.items()}
    labels = _labels(page)
    return {
        names[name]: Documented(names[name], kind, labels[names[name]] - {"model_name", "engine"})
        for name, kind in families.items()
        if name.startswith("vllm:")
    }


def _labels(page: str) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for family in text_string_to_metric_families(page):
        name = family.name + ("_total" if family.type == "counter" else "")
        for sample in family.samples:
            found[name] = found.get(name, frozenset()) | (sample.labels.keys() - {"le"})
    return found
