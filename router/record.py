"""What is counted, logged and traced of one request."""

import asyncio
import logging
import time
from types import TracebackType

from halfmoon.errors import DeadlineError, HalfmoonError, WorkerFailedError
from halfmoon.telemetry import OpenSpan
from halfmoon.v1 import router_pb2 as pb
from router.answer import Answer
from router.job import Job
from router.metrics import RouterMetrics
from router.policy import Plan
from router.trace import answer_attributes, job_attributes

_log = logging.getLogger(__name__)


class RequestRecord:
    """Follows one request from its arrival to its end, of whatever kind; writes one line then."""

    def __init__(self, metrics: RouterMetrics, request_id: str, span: OpenSpan) -> None:
        self._metrics = metrics
        self._request_id = request_id
        self._span = span
        self._arrived = time.monotonic()
        self._last_tokens: dict[int, float] = {}
        self._first_token: float | None = None
        self._job: Job | None = None
        self._plan: Plan | None = None
        self._answer: Answer | None = None
        self._deadline = float("inf")

    def __enter__(self) -> "RequestRecord":
        self._metrics.waiting.add(1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        now = time.monotonic()
        (self._metrics.waiting if self._first_token is None else self._metrics.running).add(-1)
        outcome = self._outcome(error, now)
        self._metrics.requests.add(outcome=outcome)
        self._metrics.request.record(now - self._arrived)
        if self._answer is not None:
            self._metrics.generated_tokens.add(self._answer.completion_tokens)
            self._span.set(answer_attributes(self._answer, self._request_id, self._ttft))
        _log.info("request ended", extra=self._fields(outcome, error, now))

    def planned(self, job: Job, plan: Plan, answer: Answer) -> None:
        """Workers are chosen, for the first time or again."""
        if self._job is None:
            self._span.set(job_attributes(job))
            self._metrics.prompt_tokens.add(len(job.prompt_ids))
        self._job, self._plan, self._answer = job, plan, answer
        self._deadline = job.deadline
        self._metrics.plans.add(reason=plan.reason)

    def attempt_failed(self, error: WorkerFailedError) -> None:
        """What was planned broke with a worker."""
        self._metrics.failed_attempts.add(1)
        _log.warning("an attempt failed", extra={"request_id": self._request_id, "error": error.message})

    def sending(self, response: pb.GenerateResponse) -> None:
        """A response goes to the client."""
        if response.HasField("prompt"):
            self._metrics.cached_tokens.add(response.prompt.cached_tokens)
        tokens = len(response.delta.token_ids)
        if not tokens:
            return
        now = time.monotonic()
        if self._first_token is None:
            self._first_token = now
            self._metrics.waiting.add(-1)
            self._metrics.running.add(1)
            self._metrics.first_token.record(now - self._arrived)
        before = self._last_tokens.get(response.delta.index)
        if before is not None:
            self._metrics.token_gap.record((now - before) / tokens, tokens)
        self._last_tokens[response.delta.index] = now

    @property
    def _ttft(self) -> float | None:
        return None if self._first_token is None else self._first_token - self._arrived

    def _outcome(self, error: BaseException | None, now: float) -> str:
        if error is None:
            return "ok"
        if isinstance(error, HalfmoonError):
            return error.reason.lower()
        if isinstance(error, GeneratorExit | asyncio.CancelledError):
            return DeadlineError.reason.lower() if now >= self._deadline else "cancelled"
        return "internal"

    def _fields(self, outcome: str, error: BaseException | None, now: float) -> dict[str, object]:
        job, plan, answer = self._job, self._plan, self._answer
        return {
            "request_id": self._request_id,
            "outcome": outcome,
            "prefill": plan.prefill.worker_id if plan and plan.prefill else None,
            "decode": plan.decode.worker_id if plan else None,
            "plan": plan.reason if plan else None,
            "prompt_tokens": len(job.prompt_ids) if job else None,
            "cached_tokens": answer.cached_tokens if answer else None,
            "completion_tokens": answer.completion_tokens if answer else None,
            "finish": (answer.finish or None) if answer else None,
            "ttft": self._ttft,
            "seconds": now - self._arrived,
            "error": error.message if isinstance(error, HalfmoonError) else None,
        }
