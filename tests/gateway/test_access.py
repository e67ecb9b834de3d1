"""Who may come in: the API key, the bound on running requests."""

import asyncio

import pytest

from tests.gateway.fakes import serving, stalling, until
from tests.gateway.streams import COMPLETIONS

pytestmark = pytest.mark.asyncio(loop_scope="module")

API = [
    ("POST", COMPLETIONS),
    ("POST", "/v1/chat/completions"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/moon"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("GET", "/nothing"),
]

WRONG = [None, "", "Bearer", "Bearer wrong", "Bearer secret-key-and-more", "Basic secret-key", "secret-key"]


async def test_the_api_needs_its_key_and_probes_do_not() -> None:
    async with serving(api_key="secret-key") as served:
        for method, path in API:
            for given in WRONG:
                headers = {} if given is None else {"Authorization": given}
                response = await served.http.request(method, path, headers=headers)
                assert response.status_code == 401, (path, given)
                assert response.json()["error"]["code"] == "unauthenticated"
                assert "secret-key" not in response.text
        for path in ("/health", "/livez", "/readyz", "/metrics"):
            assert (await served.http.get(path)).status_code == 200
        for given in ("Bearer secret-key", "bearer  secret-key"):
            ok = await served.http.post(COMPLETIONS, json={"prompt": "Hi"}, headers={"Authorization": given})
            assert ok.status_code == 200
        assert len(served.router.requests) == 2


async def test_past_the_bound_a_request_is_refused_at_once() -> None:
    async with serving(stalling(), max_running=2) as served:
        held = [asyncio.create_task(served.http.post(COMPLETIONS, json={"prompt": "Hi"})) for _ in range(2)]
        await until(lambda: served.router.open == 2, 5)
        refused = await served.http.post(COMPLETIONS, json={"prompt": "Hi"})
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["error"]["code"] == "overloaded"
        assert (await served.http.get("/readyz")).status_code == 200
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        await until(lambda: served.router.open == 0)
        assert (await served.http.get("/v1/models")).status_code == 200
