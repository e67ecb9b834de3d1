"""The span of one request at the router, in the terms of the GenAI conventions."""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.trace import SpanKind

from halfmoon.telemetry import OpenSpan, span
from halfmoon.telemetry import conventions as names
from halfmoon.telemetry.spans import Attributes
from halfmoon.v1 import router_pb2 as pb
from router.answer import Answer
from router.job import Job
from router.policy import Plan


@contextmanager
def request_span(request: pb.GenerateRequest, model: str) -> Iterator[OpenSpan]:
    """Current until the request has ended, however it ends."""
    operation = names.CHAT if request.WhichOneof("input") == "chat" else names.TEXT_COMPLETION
    attributes = {
        names.OPERATION: operation,
        names.PROVIDER: names.PROVIDER_NAME,
        names.REQUEST_MODEL: model,
        names.REQUEST_ID: request.request_id,
    }
    with span(f"{operation} {model}", attributes, kind=SpanKind.SERVER) as opened:
        yield opened


def job_attributes(job: Job) -> Attributes:
    """What was asked for; stop strings are texts and stay out."""
    sampling = job.sampling
    asked = {
        names.INPUT_TOKENS: len(job.prompt_ids),
        names.MAX_TOKENS: sampling.max_tokens,
        names.TEMPERATURE: sampling.temperature,
        names.TOP_P: sampling.top_p,
        names.CHOICES: sampling.n,
    }
    return {**asked, names.TOP_K: sampling.top_k} if sampling.top_k else asked


def plan_attributes(plan: Plan) -> Attributes:
    """Who serves it, and why."""
    chosen = {names.PLAN: plan.reason, names.DECODE_WORKER: plan.decode.worker_id}
    return chosen if plan.prefill is None else {**chosen, names.PREFILL_WORKER: plan.prefill.worker_id}


def answer_attributes(answer: Answer, request_id: str, first_token: float | None) -> Attributes:
    """What came of it; `first_token` is in seconds from the arrival."""
    told: dict[str, str | int | float | list[str]] = {
        names.RESPONSE_ID: request_id,
        names.CACHED_TOKENS: answer.cached_tokens,
        names.OUTPUT_TOKENS: answer.completion_tokens,
        names.FINISH_REASONS: answer.finish_reasons,
    }
    return told if first_token is None else {**told, names.TIME_TO_FIRST_TOKEN: first_token}
