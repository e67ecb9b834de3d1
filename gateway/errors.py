"""The one place where errors become HTTP statuses and bodies."""

import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec
from starlette.responses import Response

from gateway.schema.service import ErrorBody, ErrorDetail
from halfmoon.errors import CancelledError, DeadlineError, HalfmoonError, InternalError, InvalidRequestError, Status

_log = logging.getLogger(__name__)

MAX_MESSAGE_CHARS = 1000
"""Longer messages are cut, so that no body is echoed."""

_HTTP: dict[Status, int] = {
    Status.INVALID_ARGUMENT: 400,
    Status.UNAUTHENTICATED: 401,
    Status.NOT_FOUND: 404,
    Status.RESOURCE_EXHAUSTED: 429,
    Status.CANCELLED: 499,
    Status.INTERNAL: 500,
    Status.FAILED_PRECONDITION: 500,
    Status.UNAVAILABLE: 503,
    Status.ABORTED: 503,
    Status.DEADLINE_EXCEEDED: 504,
}

_TYPES: dict[int, str] = {
    401: "authentication_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}

_RETRIABLE = (429, 503)


class BodyTooLargeError(InvalidRequestError):
    """The body has more bytes than the gateway takes."""

    reason = "BODY_TOO_LARGE"


class BodyTimeoutError(DeadlineError):
    """The body did not arrive in time."""

    reason = "BODY_TIMEOUT"


class ClientGoneError(CancelledError):
    """The client hung up, or left its stream unread for too long."""

    reason = "CLIENT_GONE"


_BY_REASON: dict[str, int] = {BodyTooLargeError.reason: 413, BodyTimeoutError.reason: 408}


def http_status(error: HalfmoonError) -> int:
    """The HTTP status that stands for an error."""
    return _BY_REASON.get(error.reason) or _HTTP[error.status]


def domain_error(problem: Exception, request_id: str) -> HalfmoonError:
    """The error to report for any exception: a bug is logged with its traceback and becomes an InternalError."""
    if isinstance(problem, HalfmoonError):
        return problem
    _log.error("request failed", extra={"request_id": request_id}, exc_info=problem)
    return InternalError("the server failed; its log tells more")


@contextmanager
def renamed_params(names: Mapping[str, str]) -> Iterator[None]:
    """Has errors from within name parameters as this API does: `names` maps the router's names to them."""
    try:
        yield
    except HalfmoonError as error:
        if error.param is not None:
            error.param = names.get(error.param, error.param)
        raise


def error_body(error: HalfmoonError) -> ErrorBody:
    """The body for an error; its code is the reason in lower case."""
    return error_detail(http_status(error), error.message, param=error.param, code=error.reason.lower())


def error_detail(status: int, message: str, *, param: str | None, code: str) -> ErrorBody:
    """A body from its parts; the type follows from the status."""
    kind = _TYPES.get(status) or ("server_error" if status >= 500 else "invalid_request_error")
    return ErrorBody(ErrorDetail(message[:MAX_MESSAGE_CHARS], kind, param, code))


def error_response(error: HalfmoonError) -> Response:
    """An answer for an error, with `Retry-After` (whole seconds) where trying again makes sense."""
    status = http_status(error)
    headers = {}
    if status in _RETRIABLE:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after or 1.0)))
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return json_response(error_body(error), status=status, headers=headers)


def json_response(body: msgspec.Struct, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer in JSON."""
    return Response(msgspec.json.encode(body), status, headers, "application/json")
