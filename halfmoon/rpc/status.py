"""Errors of the domain on the wire: a `google.rpc.Status` with one `ErrorInfo`, and back."""

import grpc
from google.protobuf.message import DecodeError
from google.rpc import code_pb2, error_details_pb2, status_pb2  # type: ignore[import-untyped]

from halfmoon.errors import (
    CancelledError,
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
)

DOMAIN = "halfmoon"

MAX_DETAIL_CHARS = 1024
"""Messages travel in HTTP/2 headers, which are bounded; what is longer is cut."""

_DETAILS_KEY = "grpc-status-details-bin"

_BY_CODE: dict[grpc.StatusCode, type[HalfmoonError]] = {
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineError,
    grpc.StatusCode.CANCELLED: CancelledError,
    grpc.StatusCode.UNIMPLEMENTED: IncompatibleError,
}
"""What gRPC itself reports, without our details."""

_WORDS: dict[grpc.StatusCode, str] = {
    grpc.StatusCode.UNAVAILABLE: "it cannot be reached, or the connection broke",
    grpc.StatusCode.DEADLINE_EXCEEDED: "no answer came in time",
    grpc.StatusCode.CANCELLED: "the call was cancelled",
}
"""gRPC's own texts name inner addresses, and go to clients: they stay in the exception's cause."""

_BY_FOREIGN_REASON: dict[grpc.StatusCode, type[HalfmoonError]] = {
    **_BY_CODE,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequestError,
    grpc.StatusCode.NOT_FOUND: ModelNotFoundError,
    grpc.StatusCode.FAILED_PRECONDITION: IncompatibleError,
    grpc.StatusCode.UNAUTHENTICATED: UnauthenticatedError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: OverloadedError,
    grpc.StatusCode.ABORTED: TransferError,
}
"""What a program of another version reports under a reason that is not known here."""


def status_from_error(error: HalfmoonError) -> status_pb2.Status:
    """The rich status of an error: canonical code, message, and ErrorInfo with `param` and `retry_after_ms`."""
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN)
    if error.param is not None:
        info.metadata["param"] = error.param
    if error.retry_after is not None:
        info.metadata["retry_after_ms"] = str(round(error.retry_after * 1000))
    status = status_pb2.Status(code=code_pb2.Code.Value(error.status.value), message=error.message[:MAX_DETAIL_CHARS])
    status.details.add().Pack(info)
    return status


def error_from_rpc(error: grpc.aio.AioRpcError) -> HalfmoonError:
    """The domain error that a failed call stands for; never raises.

    Without our details the code decides: a broken connection is UnavailableError, a deadline DeadlineError, a cancelled
    call CancelledError, a method that the peer lacks IncompatibleError, and everything else InternalError.
    """
    message = error.details() or error.code().name
    info = _error_info(error)
    if info is None:
        return _BY_CODE.get(error.code(), InternalError)(_WORDS.get(error.code(), message))
    kind = _by_reason().get(info.reason) or _BY_FOREIGN_REASON.get(error.code(), InternalError)
    retry_ms = info.metadata.get("retry_after_ms", "")
    return kind(
        message,
        param=info.metadata.get("param"),
        retry_after=int(retry_ms) / 1000 if retry_ms.isdecimal() else None,
    )


def _error_info(error: grpc.aio.AioRpcError) -> error_details_pb2.ErrorInfo | None:
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS_KEY and isinstance(value, bytes):
            return _unpack(value)
    return None


def _unpack(value: bytes) -> error_details_pb2.ErrorInfo | None:
    info = error_details_pb2.ErrorInfo()
    try:
        for detail in status_pb2.Status.FromString(value).details:
            if detail.Unpack(info) and info.domain == DOMAIN:
                return info
    except DecodeError:
        return None
    return None


def _by_reason() -> dict[str, type[HalfmoonError]]:
    """Every error class by its reason; made anew, since packages may define classes of their own."""
    classes: dict[str, type[HalfmoonError]] = {}
    pending = [HalfmoonError]
    while pending:
        kind = pending.pop()
        classes.setdefault(kind.reason, kind)
        pending.extend(kind.__subclasses__())
    classes[InternalError.reason] = InternalError
    return classes
