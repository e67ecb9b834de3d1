"""Errors of the router as HTTP: before an answer began, and within a stream."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from halfmoon.errors import (
    CancelledError,
    ContextLengthError,
    DeadlineError,
    HalfmoonError,
    IncompatibleError,
    InternalError,
    InvalidRequestError,
    ModelNotFoundError,
    OverloadedError,
    TransferError,
    UnauthenticatedError,
    UnavailableError,
    WorkerFailedError,
)
from halfmoon.v1.router_pb2 import GenerateRequest, GenerateResponse
from tests.gateway.fakes import Served, failing, serving, stalling, until
from tests.gateway.speaker import speak
from tests.gateway.streams import CHAT, COMPLETIONS, read_stream

pytestmark = pytest.mark.asyncio(loop_scope="module")

USER = [{"role": "user", "content": "Hi"}]

BODIES: list[tuple[str, dict[str, Any]]] = [(COMPLETIONS, {"prompt": "Hi"}), (CHAT, {"messages": USER})]

CASES: list[tuple[HalfmoonError, int, str, str]] = [
    (InvalidRequestError("bad", param="stop"), 400, "invalid_request_error", "invalid_request"),
    (ContextLengthError("9 > 8", param="prompt"), 400, "invalid_request_error", "context_length_exceeded"),
    (UnauthenticatedError("who?"), 401, "authentication_error", "unauthenticated"),
    (ModelNotFoundError("no", param="model"), 404, "invalid_request_error", "model_not_found"),
    (OverloadedError("full", retry_after=2.5), 429, "rate_limit_error", "overloaded"),
    (InternalError("bug"), 500, "server_error", "internal"),
    (IncompatibleError("other model"), 500, "server_error", "incompatible"),
    (UnavailableError("nobody"), 503, "service_unavailable_error", "unavailable"),
    (WorkerFailedError("worker died", retry_after=1), 503, "service_unavailable_error", "worker_failed"),
    (TransferError("lost"), 503, "service_unavailable_error", "kv_transfer_failed"),
    (CancelledError("aborted"), 503, "service_unavailable_error", "unavailable"),
    (DeadlineError("too slow"), 504, "timeout_error", "deadline_exceeded"),
]


@pytest.mark.parametrize(("error", "status", "kind", "code"), CASES, ids=lambda value: str(value)[:20])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_early_error_gets_its_status(
    served: Served, error: HalfmoonError, status: int, kind: str, code: str, stream: bool
) -> None:
    """Row 20: a stream that fails before its first event fails as any other request does."""
    served.router.script = failing(error)
    for path, body in BODIES:
        response = await served.http.post(path, json={**body, "stream": stream})
        assert response.status_code == status
        assert response.headers["content-type"] == "application/json"
        detail = response.json()["error"]
        assert set(detail) == {"message", "type", "param", "code"}
        assert (detail["type"], detail["code"]) == (kind, code)
        if not isinstance(error, CancelledError):
            assert detail["message"] == error.message
        assert ("retry-after" in response.headers) == (status in {429, 503})


async def test_retry_after_is_whole_seconds_rounded_up(served: Served) -> None:
    served.router.script = failing(OverloadedError("full", retry_after=2.5))
    response = await served.http.post(COMPLETIONS, json={"prompt": "Hi"})
    assert response.headers["retry-after"] == "3"


async def test_a_prompt_too_long_is_told_with_both_numbers(served: Served) -> None:
    """Row 21: the router's message passes unchanged."""
    error = ContextLengthError("the prompt has 129 tokens, the context of the model 128", param="prompt")
    served.router.script = failing(error)
    response = await served.http.post(COMPLETIONS, json={"prompt": "Hi"})
    assert response.status_code == 400
    assert "129" in response.json()["error"]["message"]
    assert "128" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "param", "named"),
    [
        (COMPLETIONS, {"prompt": "Hi"}, "prompt", "prompt"),
        (COMPLETIONS, {"prompt": "Hi"}, "logprobs", "logprobs"),
        (COMPLETIONS, {"prompt": "Hi"}, "logit_bias", "logit_bias"),
        (COMPLETIONS, {"prompt": "Hi"}, None, None),
        (CHAT, {"messages": USER}, "prompt", "messages"),
        (CHAT, {"messages": USER}, "logprobs", "top_logprobs"),
        (CHAT, {"messages": USER}, "n", "n"),
    ],
)
async def test_a_refused_parameter_has_the_name_of_the_api(
    served: Served, path: str, body: dict[str, Any], param: str | None, named: str | None
) -> None:
    """Rows 11, 12, 13, 15: what only the router can tell."""
    served.router.script = failing(InvalidRequestError("out of bounds", param=param))
    response = await served.http.post(path, json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == named


@pytest.mark.parametrize(("path", "body"), BODIES)
async def test_an_error_within_a_stream_is_an_event_before_the_end_mark(
    served: Served, path: str, body: dict[str, Any]
) -> None:
    """Row 24."""
    served.router.script = failing(WorkerFailedError("worker w1 died"), after=4)
    events = await read_stream(served.http, path, body)
    assert events[0]["choices"]
    assert events[-1] == {
        "error": {
            "message": "worker w1 died",
            "type": "service_unavailable_error",
            "param": None,
            "code": "worker_failed",
        }
    }


@pytest.mark.parametrize(("path", "body"), BODIES)
async def test_a_late_error_leaves_no_partial_answer_outside_a_stream(
    served: Served, path: str, body: dict[str, Any]
) -> None:
    served.router.script = failing(WorkerFailedError("worker w1 died"), after=4)
    response = await served.http.post(path, json=body)
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "worker_failed"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_router_that_stops_short_is_an_error_not_a_short_answer(served: Served, stream: bool) -> None:
    """Row 7: a truncated answer never looks like a finished one."""
    served.router.script = _cut_short
    if stream:
        error = (await read_stream(served.http, COMPLETIONS, {"prompt": "Hi"}))[-1]["error"]
    else:
        response = await served.http.post(COMPLETIONS, json={"prompt": "Hi"})
        assert response.status_code == 500
        error = response.json()["error"]
    assert error["code"] == "internal"


async def test_an_unknown_model_is_404(served: Served) -> None:
    """Row 20."""
    response = await served.http.post(CHAT, json={"model": "sun", "messages": USER})
    assert response.status_code == 404
    assert response.json()["error"]["param"] == "model"
    assert response.json()["error"]["code"] == "model_not_found"


async def test_a_request_that_takes_too_long_is_504(served: Served) -> None:
    served.router.script = stalling(after=2)
    response = await served.http.post(COMPLETIONS, json={"prompt": "Hi", "timeout": 0.2})
    assert response.status_code == 504
    await until(lambda: served.router.open == 0)


async def test_a_router_that_is_away_is_503() -> None:
    async with serving(routers=("127.0.0.1:9",)) as served:
        response = await served.http.post(COMPLETIONS, json={"prompt": "Hi"})
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "unavailable"
    assert "retry-after" in response.headers


async def test_a_long_message_is_cut(served: Served) -> None:
    """Row 20: no echo of a large body."""
    served.router.script = failing(InvalidRequestError("x" * 100_000))
    response = await served.http.post(COMPLETIONS, json={"prompt": "Hi"})
    assert response.status_code == 400
    assert len(response.content) < 2000


async def _cut_short(request: GenerateRequest) -> AsyncIterator[GenerateResponse]:
    events = [event async for event in speak(request)]
    for event in events[:-1]:
        yield event
