"""What every request passes through: its id and record outside, who may come in inside."""

import hmac
import logging
import re
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.errors import domain_error, error_response
from gateway.metrics import GatewayMetrics
from gateway.record import RequestRecord
from gateway.running import Running
from gateway.trace import request_span
from halfmoon.errors import UnauthenticatedError

_log = logging.getLogger(__name__)

REQUEST_ID = "x-request-id"

PROBES = frozenset(("/health", "/livez", "/readyz", "/metrics"))
"""Open to everybody, at any time."""

_API = frozenset(("/v1/completions", "/v1/chat/completions", "/v1/models", "/tokenize", "/detokenize"))

_GOOD_ID = re.compile(r"[\x21-\x7e]{1,100}")


class Observe:
    """Gives each request its id and record, catches what nobody else has, and tells log and metrics how it ended."""

    def __init__(self, app: ASGIApp, metrics: GatewayMetrics) -> None:
        self._app = app
        self._metrics = metrics
        self._ids: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = _request_id(scope)
        record = RequestRecord(self._unique(given), _route(scope["path"]))
        scope.setdefault("state", {})["record"] = record
        if record.route in PROBES:
            await self._serve(record, scope, receive, _Outgoing(send, record, given))
            return
        with request_span(scope, record):
            await self._serve(record, scope, receive, _Outgoing(send, record, given))

    async def _serve(self, record: RequestRecord, scope: Scope, receive: Receive, outgoing: "_Outgoing") -> None:
        self._ids.add(record.request_id)
        try:
            await self._app(scope, receive, outgoing)
        except Exception as problem:
            error = domain_error(problem, record.request_id)
            record.failed(error)
            if outgoing.begun:
                raise
            await error_response(error)(scope, receive, outgoing)
        finally:
            self._ids.discard(record.request_id)
            self._ended(record)

    def _unique(self, request_id: str) -> str:
        """Clients may use an id again, a retry for one, while its first request is still running."""
        return f"{request_id}-{uuid.uuid4().hex[:8]}" if request_id in self._ids else request_id

    def _ended(self, record: RequestRecord) -> None:
        self._metrics.ended(record)
        if record.route in PROBES:
            return
        _log.info(
            "request ended",
            extra={
                "request_id": record.request_id,
                "route": record.route,
                "status": record.status,
                "error": record.error,
                "seconds": round(record.seconds, 4),
                "prompt_tokens": record.prompt_tokens,
                "completion_tokens": record.completion_tokens,
            },
        )


class Admit:
    """Checks the API key and takes a place among the running requests for everything but probes."""

    def __init__(self, app: ASGIApp, running: Running, api_key: str | None) -> None:
        self._app = app
        self._running = running
        self._api_key = None if api_key is None else api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request, or refuses it."""
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        self._authenticate(Headers(scope=scope))
        with self._running.admitted():
            await self._app(scope, receive, send)

    def _authenticate(self, headers: Headers) -> None:
        if self._api_key is None:
            return
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(key.strip().encode(), self._api_key):
            raise UnauthenticatedError("the API key is missing or wrong: send it as 'Authorization: Bearer KEY'")


class _Outgoing:
    """Sends an answer with the id that the client knows, and notes its status."""

    def __init__(self, send: Send, record: RequestRecord, request_id: str) -> None:
        self._send = send
        self._record = record
        self._request_id = request_id
        self.begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            self._record.status = message["status"]
            MutableHeaders(scope=message)[REQUEST_ID] = self._request_id
        await self._send(message)


def _request_id(scope: Scope) -> str:
    """The id that the client gave where it fits a header and a log line, else a new one."""
    given = Headers(scope=scope).get(REQUEST_ID, "")
    return given if _GOOD_ID.fullmatch(given) else uuid.uuid4().hex


def _route(path: str) -> str:
    """The route as metrics name it: one of few, whatever clients ask for."""
    if path in PROBES or path in _API:
        return path
    return "/v1/models/{id}" if path.startswith("/v1/models/") else "other"
