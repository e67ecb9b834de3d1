"""What is known about one HTTP request while it runs: the facts of its log line and its metrics."""

import time
from dataclasses import dataclass, field

from starlette.types import Scope

from gateway.errors import http_status
from halfmoon.errors import HalfmoonError


@dataclass(slots=True)
class RequestRecord:
    """`status` is that of the answer, or of the error that ended a stream after its head was sent (0: none yet)."""

    request_id: str
    route: str
    started: float = field(default_factory=time.perf_counter)
    status: int = 0
    error: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None

    @property
    def seconds(self) -> float:
        """Time since the request came in."""
        return time.perf_counter() - self.started

    def failed(self, error: HalfmoonError) -> None:
        """Notes the error that ended the request."""
        self.status = http_status(error)
        self.error = error.reason.lower()


def record_of(scope: Scope) -> RequestRecord:
    """The record that the middleware has put into the scope."""
    record = scope["state"]["record"]
    assert isinstance(record, RequestRecord)
    return record
