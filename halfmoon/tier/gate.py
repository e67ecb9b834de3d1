"""Whether a worker takes a request now: its state in life, its role, its bound, and the model asked for."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from halfmoon.config import RETRY_AFTER
from halfmoon.errors import IncompatibleError, InvalidRequestError, OverloadedError, UnavailableError


class WorkerState(Enum):
    """Where a worker is in its life."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


class Gate:
    """Counts the requests that are inside: at most `limit` at once, each id once, so that no call ends another's."""

    def __init__(self, *, worker_id: str, role: str, fingerprint: str, limit: int) -> None:
        self.state = WorkerState.STARTING
        self.inside = 0
        self._ids: set[str] = set()
        self._worker_id = worker_id
        self._role = role
        self._fingerprint = fingerprint
        self._limit = limit

    @contextmanager
    def enter(self, work: str, fingerprint: str, request_id: str) -> Iterator[None]:
        """For the time of one request of kind `work`, "prefill" or "decode". Raises what refuses it."""
        self._check(work, fingerprint)
        if request_id in self._ids:
            raise InvalidRequestError(f"request id {request_id!r} is already running", param="request_id")
        self._ids.add(request_id)
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1
            self._ids.discard(request_id)

    def _check(self, work: str, fingerprint: str) -> None:
        if self.state is not WorkerState.READY:
            message = f"worker {self._worker_id} is {self.state.value} and takes no requests"
            raise UnavailableError(message, retry_after=RETRY_AFTER)
        if self._role not in (work, "both"):
            raise IncompatibleError(f"worker {self._worker_id} has the role {self._role} and does no {work}")
        if fingerprint != self._fingerprint:
            raise IncompatibleError(
                f"worker {self._worker_id} serves the model {self._fingerprint}, the request wants {fingerprint}"
            )
        if self.inside >= self._limit:
            message = f"worker {self._worker_id} holds {self.inside} requests, its bound"
            raise OverloadedError(message, retry_after=RETRY_AFTER)
