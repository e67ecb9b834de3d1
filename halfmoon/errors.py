"""The errors of the domain: what a program may report to its caller, and under which canonical code.

Raise one of these wherever a caller can act on it; everything else is a bug and becomes INTERNAL. The gRPC interceptor
(`halfmoon.rpc`) and the HTTP handler (`gateway`) are the two places that translate them.
"""

from enum import Enum
from typing import ClassVar


class Status(Enum):
    """Canonical codes that Halfmoon uses, named as gRPC names them."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    NOT_FOUND = "NOT_FOUND"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    UNAVAILABLE = "UNAVAILABLE"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    CANCELLED = "CANCELLED"
    ABORTED = "ABORTED"
    INTERNAL = "INTERNAL"


class HalfmoonError(Exception):
    """Base of all errors of the domain.

    `message` says what was wrong, with the values, and what to do. `param` names the request parameter at fault.
    `retry_after` is a hint in seconds for errors that pass.
    """

    status: ClassVar[Status] = Status.INTERNAL
    reason: ClassVar[str] = "INTERNAL"

    def __init__(self, message: str, *, param: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after = retry_after


class InvalidRequestError(HalfmoonError):
    """A parameter has a value that can never be served."""

    status = Status.INVALID_ARGUMENT
    reason = "INVALID_REQUEST"


class ContextLengthError(InvalidRequestError):
    """The prompt does not fit the model's context."""

    reason = "CONTEXT_LENGTH_EXCEEDED"


class ModelNotFoundError(HalfmoonError):
    """The model asked for is not served here."""

    status = Status.NOT_FOUND
    reason = "MODEL_NOT_FOUND"


class UnknownWorkerError(HalfmoonError):
    """A heartbeat from a worker or incarnation that is not registered."""

    status = Status.NOT_FOUND
    reason = "UNKNOWN_WORKER"


class IncompatibleError(HalfmoonError):
    """Two programs differ in model, geometry or version."""

    status = Status.FAILED_PRECONDITION
    reason = "INCOMPATIBLE"


class UnauthenticatedError(HalfmoonError):
    """The caller did not prove who it is."""

    status = Status.UNAUTHENTICATED
    reason = "UNAUTHENTICATED"


class OverloadedError(HalfmoonError):
    """A bounded queue or pool is full."""

    status = Status.RESOURCE_EXHAUSTED
    reason = "OVERLOADED"


class UnavailableError(HalfmoonError):
    """Nobody is there to do the work: no worker, or the program is starting or draining."""

    status = Status.UNAVAILABLE
    reason = "UNAVAILABLE"


class WorkerFailedError(UnavailableError):
    """The worker that held the request failed."""

    reason = "WORKER_FAILED"


class DeadlineError(HalfmoonError):
    """A wait reached its deadline."""

    status = Status.DEADLINE_EXCEEDED
    reason = "DEADLINE_EXCEEDED"


class CancelledError(HalfmoonError):
    """The caller went away, or the request was aborted."""

    status = Status.CANCELLED
    reason = "CANCELLED"


class TransferError(HalfmoonError):
    """KV blocks could not be moved, or what arrived cannot be trusted."""

    status = Status.ABORTED
    reason = "KV_TRANSFER_FAILED"


class StaleIncarnationError(TransferError):
    """The owner of a handle is not the process that issued it."""

    reason = "STALE_INCARNATION"


class LeaseExpiredError(TransferError):
    """A handle is unknown, released, or its lease ran out."""

    reason = "LEASE_EXPIRED"


class InternalError(HalfmoonError):
    """A bug: the invariant that broke is named in the message."""


class ModelError(HalfmoonError):
    """A model folder or file that cannot be served: missing, damaged, or of an unsupported kind."""

    status = Status.FAILED_PRECONDITION
    reason = "MODEL_UNUSABLE"


class ConfigError(HalfmoonError):
    """A flag or a combination of flags that cannot work."""

    status = Status.INVALID_ARGUMENT
    reason = "BAD_CONFIG"
