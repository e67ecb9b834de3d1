"""One try at serving a job by a plan: the calls to both tiers, and everything that must be given back after them.

An attempt reports to the request's `Answer`, which knows what the client has already been told; so a later attempt can
go on where an earlier one failed.
"""

import secrets
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import ExitStack, aclosing
from typing import TypeAlias

from halfmoon.config import DEADLINES
from halfmoon.errors import DeadlineError, HalfmoonError, InternalError
from halfmoon.telemetry import call_span
from halfmoon.telemetry import conventions as names
from halfmoon.v1 import decode_pb2, kvtransfer_pb2, prefill_pb2
from halfmoon.v1 import router_pb2 as pb
from halfmoon.wire import sampling_to_pb
from router.answer import Answer
from router.interleave import Read, interleaved
from router.job import Job
from router.links import Links, WorkerStream
from router.policy import Demand, Plan
from router.tasks import BackgroundTasks
from router.worker import Assignment, Worker

Event: TypeAlias = prefill_pb2.PrefillResponse | decode_pb2.DecodeResponse


class Attempt:
    """Runs one plan. `run` is read to its end or closed; either way nothing of it is left at any worker.

    `number` counts a job's attempts from 0: a worker may still be ending an earlier one, so each has an id of its own.
    """

    def __init__(
        self,
        job: Job,
        plan: Plan,
        answer: Answer,
        *,
        number: int = 0,
        fingerprint: str,
        links: Links,
        tasks: BackgroundTasks,
    ) -> None:
        self._job = job
        self._request_id = f"{job.request_id}.{number}" if number else job.request_id
        self._plan = plan
        self._answer = answer
        self._fingerprint = fingerprint
        self._links = links
        self._tasks = tasks
        self._first_tokens_due = False
        self._decode_accepted = False
        self._told_cut: set[int] = set()
        self._held: list[decode_pb2.DecodeResponse] = []
        self._handle_id = secrets.token_bytes(16)
        self._handle: kvtransfer_pb2.KvHandle | None = None
        self._transferred = False
        self._unanswered = False

    async def run(self, demand: Demand) -> AsyncGenerator[pb.GenerateResponse, None]:
        """Prompt and deltas, until every choice has ended."""
        plan = self._plan
        with ExitStack() as stack:
            if plan.prefill is None:
                load = self._assign(stack, plan.decode, demand, demand.uncached(plan.decode))
                responses = self._whole(stack, load)
            else:
                self._assign(stack, plan.decode, demand, 0)
                load = self._assign(stack, plan.prefill, demand, demand.uncached(plan.prefill))
                responses = self._split(stack, plan.prefill, load)
            async with aclosing(responses):
                async for response in responses:
                    yield response

    async def _whole(self, stack: ExitStack, load: Assignment) -> AsyncGenerator[pb.GenerateResponse, None]:
        stream = stack.enter_context(self._decode(None))
        async for event in stream:
            if event.HasField("tokens"):
                load.prefill_left(0)
            for response in self._on_decode(event):
                yield response
            if self._answer.done and self._answer.cut:
                return
        for response in self._ended(self._plan.decode):
            yield response

    async def _split(
        self, stack: ExitStack, worker: Worker, load: Assignment
    ) -> AsyncGenerator[pb.GenerateResponse, None]:
        self._first_tokens_due = True
        stack.push(lambda error, *_: self._release(worker, failed=error is not None))
        prefill = stack.enter_context(self._prefill(worker))
        accepted = await self._accepted(prefill, worker)
        load.prefill_left(len(self._job.prompt_ids) - accepted.cached_tokens)
        reads: list[Read[Event]] = [self._until_result(prefill, worker)]
        if self._handle is not None:
            reads.append(stack.enter_context(self._decode(self._handle)).read)
        for response in self._answer.accepted(accepted.cached_tokens):
            yield response
        events: AsyncGenerator[Event, None] = interleaved(*reads)
        async with aclosing(events):
            async for event in events:
                for response in self._on_event(event, load):
                    yield response
                if self._answer.done and len(reads) > 1 and self._need_not_wait(event):
                    return
        for response in self._ended(self._plan.decode):
            yield response

    def _need_not_wait(self, event: Event) -> bool:
        """Whether decode has no part in the answer, which ended with its first tokens, or would write past its end."""
        return self._answer.cut or isinstance(event, prefill_pb2.PrefillResponse)

    def _until_result(self, prefill: WorkerStream[prefill_pb2.PrefillResponse], worker: Worker) -> Read[Event]:
        """Once the result is here, prefill has done its part: what breaks then is told by decode or by nobody."""

        async def read() -> prefill_pb2.PrefillResponse | None:
            try:
                event = await prefill.read()
            except HalfmoonError:
                if self._first_tokens_due:
                    raise
                return None
            if event is None and self._first_tokens_due:
                raise InternalError(f"worker {worker.worker_id} ended the stream without a result")
            return event

        return read

    def _on_event(self, event: Event, load: Assignment) -> list[pb.GenerateResponse]:
        if isinstance(event, decode_pb2.DecodeResponse):
            return self._on_decode(event)
        if event.HasField("progress"):
            load.prefill_left(len(self._job.prompt_ids) - event.progress.computed_tokens)
            return []
        if not event.HasField("result"):
            return []
        load.close()
        return self._on_result(event.result)

    def _on_result(self, result: prefill_pb2.PrefillResult) -> list[pb.GenerateResponse]:
        self._first_tokens_due = False
        responses = self._answer.prompt_logprobs(result.prompt_logprobs)
        responses += self._answer.tokens(result.first_tokens)
        held, self._held = self._held, []
        for event in held:
            responses += self._on_decode(event)
        self._stop_cut_choices()
        return responses

    def _on_decode(self, event: decode_pb2.DecodeResponse) -> list[pb.GenerateResponse]:
        if event.HasField("transferred"):
            self._transferred = True
            return []
        if event.HasField("accepted"):
            self._decode_accepted = True
            self._stop_cut_choices()
            return self._answer.accepted(event.accepted.cached_tokens) if self._plan.prefill is None else []
        if self._first_tokens_due:
            self._held.append(event)
            return []
        if event.HasField("prompt_logprobs"):
            return self._answer.prompt_logprobs(event.prompt_logprobs.entries)
        responses = self._answer.tokens(event.tokens.tokens)
        self._stop_cut_choices()
        return responses

    def _ended(self, worker: Worker) -> Iterable[pb.GenerateResponse]:
        """The workers have nothing more to say."""
        if self._job.sampling.max_tokens == 0:
            return self._answer.ended_without_tokens()
        if not self._answer.done:
            raise InternalError(f"worker {worker.worker_id} ended the stream before the answer")
        return []

    async def _accepted(
        self, prefill: WorkerStream[prefill_pb2.PrefillResponse], worker: Worker
    ) -> prefill_pb2.PrefillAccepted:
        self._unanswered = self._job.decodes
        try:
            event = await prefill.read()
        except HalfmoonError as error:
            self._unanswered = isinstance(error, DeadlineError)
            raise
        self._unanswered = False
        if event is None or not event.HasField("accepted"):
            raise InternalError(f"worker {worker.worker_id} did not begin with accepted")
        if event.accepted.HasField("handle"):
            self._handle = event.accepted.handle
        elif self._job.decodes:
            raise InternalError(f"worker {worker.worker_id} gave no handle")
        return event.accepted

    def _prefill(self, worker: Worker) -> WorkerStream[prefill_pb2.PrefillResponse]:
        link = self._links.of(worker)
        request = prefill_pb2.PrefillRequest(
            request_id=self._request_id,
            model_fingerprint=self._fingerprint,
            prompt_token_ids=self._job.prompt_ids,
            sampling=sampling_to_pb(self._job.sampling),
            priority=self._job.priority,
            publish_kv=self._job.decodes,
            source=self._source(),
            handle_id=self._handle_id if self._job.decodes else b"",
        )
        span = call_span("halfmoon.v1.Prefill/Prefill", {names.WORKER: worker.worker_id})
        call = link.prefill.Prefill(request, timeout=self._seconds_left(), metadata=span.metadata)
        return WorkerStream(worker, link, call, span)

    def _decode(self, handle: kvtransfer_pb2.KvHandle | None) -> WorkerStream[decode_pb2.DecodeResponse]:
        worker = self._plan.decode
        link = self._links.of(worker)
        request = decode_pb2.DecodeRequest(
            request_id=self._request_id,
            model_fingerprint=self._fingerprint,
            prompt_token_ids=self._job.prompt_ids,
            sampling=sampling_to_pb(self._job.sampling),
            priority=self._job.priority,
            handle=handle,
            source=self._source() if handle is None else None,
        )
        span = call_span("halfmoon.v1.Decode/Generate", {names.WORKER: worker.worker_id})
        call = link.decode.Generate(request, timeout=self._seconds_left(), metadata=span.metadata)
        return WorkerStream(worker, link, call, span)

    def _source(self) -> kvtransfer_pb2.KvSource | None:
        worker = self._plan.source
        if worker is None:
            return None
        pages = worker.description.geometry.pages_for(self._plan.source_tokens)
        return kvtransfer_pb2.KvSource(endpoint=worker.description.kv_endpoint, pages=pages)

    def _assign(self, stack: ExitStack, worker: Worker, demand: Demand, prefill_tokens: int) -> Assignment:
        pages = worker.description.geometry.pages_for(demand.positions)
        assignment = worker.assign(prefill_tokens=prefill_tokens, pages=pages)
        stack.callback(assignment.close)
        return assignment

    def _release(self, worker: Worker, *, failed: bool) -> None:
        """On every ending but a good one after a completed transfer: decode then releases the handle itself.

        A decode worker may break between the two, so after a failure it is released whatever decode said.
        """
        if self._handle is not None and (failed or not self._transferred):
            self._links.release(worker, self._handle, self._request_id)
        elif self._unanswered:
            self._links.withdraw(worker, self._handle_id, self._request_id)

    def _stop_cut_choices(self) -> None:
        """Tells decode of choices that a stop string ended; when all have ended the stream is closed instead."""
        if not self._decode_accepted or self._answer.done:
            return
        choices = self._answer.cut_choices - self._told_cut
        self._told_cut |= choices
        if choices:
            request = decode_pb2.StopChoicesRequest(request_id=self._request_id, choices=sorted(choices))
            self._tasks.start(
                lambda: self._stop_choices(request),
                "stop choices",
                request_id=self._request_id,
                worker=self._plan.decode.worker_id,
            )

    async def _stop_choices(self, request: decode_pb2.StopChoicesRequest) -> None:
        await self._links.of(self._plan.decode).decode.StopChoices(request, timeout=DEADLINES.control)

    def _seconds_left(self) -> float:
        return max(0.0, self._job.deadline - time.monotonic())
