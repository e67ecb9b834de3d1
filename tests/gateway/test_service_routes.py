"""Models, tokens, health and metrics."""

import pytest

from halfmoon.errors import ConfigError
from tests.gateway.fakes import Served, failing, serving
from tests.gateway.streams import COMPLETIONS

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = {
    "id": "moon",
    "object": "model",
    "created": 1_700_000_000,
    "owned_by": "halfmoon",
    "max_model_len": 128,
    "vocab_size": 300,
    "fingerprint": "f00d",
}


async def test_models_are_listed_and_found_by_name(served: Served) -> None:
    assert (await served.http.get("/v1/models")).json() == {"object": "list", "data": [MODEL]}
    assert (await served.http.get("/v1/models/moon")).json() == MODEL


@pytest.mark.parametrize("name", ["sun", "org/moon", "moon/", "mo%20on"])
async def test_an_unknown_model_is_404(served: Served, name: str) -> None:
    """Row 20."""
    response = await served.http.get(f"/v1/models/{name}")
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"


async def test_tokenize_takes_a_prompt_or_messages(served: Served) -> None:
    """Row 18: whether a begin token is added can be said; it is the router that adds it."""
    prompt = await served.post("/tokenize", prompt="Hi")
    assert prompt == {"count": 3, "max_model_len": 128, "tokens": [1, *b"Hi"]}
    bare = await served.post("/tokenize", prompt="Hi", add_special_tokens=False)
    assert bare["tokens"] == list(b"Hi")
    chat = await served.post("/tokenize", model="moon", messages=[{"role": "user", "content": "Ho"}])
    assert chat["tokens"] == [1, *b"Ho"]


async def test_detokenize_gives_text(served: Served) -> None:
    assert await served.post("/detokenize", tokens=list("Grüße".encode())) == {"prompt": "Grüße"}
    assert await served.post("/detokenize", tokens=[]) == {"prompt": ""}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}, "prompt"),
        ("/tokenize", {"prompt": 3}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": "a"}, "tokens"),
    ],
)
async def test_wrong_bodies_are_refused_by_name(served: Served, path: str, body: dict[str, object], param: str) -> None:
    """Row 20."""
    response = await served.http.post(path, json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


async def test_a_gateway_with_a_ready_worker_is_ready(served: Served) -> None:
    for path, status in (("/livez", "live"), ("/readyz", "ready"), ("/health", "ready")):
        response = await served.http.get(path)
        assert (response.status_code, response.json()) == (200, {"status": status})


async def test_without_a_ready_worker_it_is_live_but_not_ready(served: Served) -> None:
    served.router.ready = False
    try:
        for path in ("/readyz", "/health"):
            response = await served.http.get(path)
            assert response.status_code == 503
            assert response.json() == {"status": "no worker is ready"}
            assert response.headers["retry-after"] == "1"
        assert (await served.http.get("/livez")).status_code == 200
    finally:
        served.router.ready = True


async def test_without_a_router_it_is_live_but_not_ready() -> None:
    async with serving(routers=("127.0.0.1:9",)) as served:
        response = await served.http.get("/readyz")
        assert response.status_code == 503
        assert response.json()["status"].startswith("no router: ")
        assert (await served.http.get("/livez")).status_code == 200


async def test_metrics_tell_requests_tokens_and_times() -> None:
    async with serving() as served:
        await served.post(COMPLETIONS, prompt="Hi", max_tokens=3)
        await served.http.post(COMPLETIONS, json={"prompt": "Hi", "stream": True, "max_tokens": 3})
        await served.http.post(COMPLETIONS, json={})
        await served.http.get("/some/path/nobody/has")
        served.router.script = failing(ConfigError("late"), after=3)
        await served.http.post(COMPLETIONS, json={"prompt": "Hi", "stream": True})
        text = (await served.http.get("/metrics")).text
        for line in (
            'halfmoon_gateway_requests_total{route="/v1/completions",status="200"} 2.0',
            'halfmoon_gateway_requests_total{route="/v1/completions",status="400"} 2.0',
            'halfmoon_gateway_requests_total{route="other",status="404"} 1.0',
            'halfmoon_gateway_tokens_total{kind="prompt"} 4.0',
            'halfmoon_gateway_tokens_total{kind="completion"} 6.0',
            "halfmoon_gateway_ttft_seconds_count 3.0",
            "halfmoon_gateway_itl_seconds_count 5.0",
            "halfmoon_gateway_requests_running 0.0",
            "halfmoon_gateway_streams_open 0.0",
        ):
            assert line in text.splitlines()
