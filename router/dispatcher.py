"""From a client's request to its answer."""

import time
from collections.abc import AsyncGenerator, Collection, Iterator, Sequence
from contextlib import aclosing, contextmanager

from halfmoon.cache.hashing import cache_salt, page_hashes
from halfmoon.config import RETRY_AFTER
from halfmoon.errors import (
    InvalidRequestError,
    ModelNotFoundError,
    OverloadedError,
    UnavailableError,
    WorkerFailedError,
)
from halfmoon.telemetry import span
from halfmoon.text import TextModel
from halfmoon.v1 import router_pb2 as pb
from router.answer import Answer
from router.attempt import Attempt
from router.config import RouterConfig
from router.fleet import Fleet
from router.job import Job
from router.links import Links
from router.metrics import RouterMetrics
from router.policy import Demand, Plan, plan
from router.preparation import Preparation, check_request_id, drawn_request_id
from router.record import RequestRecord
from router.tasks import BackgroundTasks
from router.trace import plan_attributes, request_span
from router.worker import Worker

_ATTEMPTS = 3
"""A worker's death may be learnt from its partner before its own stream breaks: the second try can meet it too."""


class Dispatcher:
    """Admits requests, chooses workers for each, and runs it; holds no more than `config.queue` at once."""

    def __init__(
        self,
        config: RouterConfig,
        text: TextModel,
        *,
        fleet: Fleet,
        links: Links,
        tasks: BackgroundTasks,
        metrics: RouterMetrics,
    ) -> None:
        self.preparation = Preparation(text)
        self.draining = False
        self._config = config
        self._text = text
        self._fleet = fleet
        self._links = links
        self._tasks = tasks
        self._metrics = metrics
        self._running: set[str] = set()

    def __len__(self) -> int:
        """Requests held now."""
        return len(self._running)

    @property
    def context(self) -> int:
        """Tokens that prompt and answer may have together."""
        own = self._text.max_model_len
        return self._fleet.context_limit(min(own, self._config.max_model_len or own))

    def check_model(self, model: str) -> None:
        """Raises ModelNotFoundError for a name that is not served; empty means the default."""
        if model not in {"", self._config.model_name}:
            raise ModelNotFoundError(
                f"the model {model[:100]!r} is not served here; {self._config.model_name!r} is", param="model"
            )

    def deadline(self, seconds: float | None) -> float:
        """When a call must have ended, on `time.monotonic`; `seconds` is what the client leaves it."""
        bound = self._config.request_deadline
        return time.monotonic() + (bound if seconds is None else min(seconds, bound))

    async def generate(
        self, request: pb.GenerateRequest, *, seconds_left: float | None
    ) -> AsyncGenerator[pb.GenerateResponse, None]:
        """Prompt, deltas, usage. Raises what the client must know; closing it aborts the request on both tiers."""
        deadline = min(self.deadline(seconds_left), self.deadline(request.timeout_ms / 1000 or None))
        request.request_id = request.request_id or drawn_request_id()
        with (
            request_span(request, self._config.model_name) as opened,
            RequestRecord(self._metrics, request.request_id, opened) as record,
            self._admitted(request.request_id),
        ):
            self.check_model(request.model)
            with span("tokenize"):
                job = await self.preparation.job(request, context=self.context, deadline=deadline)
            answer = Answer(job, self._text, self._config.model_name)
            async with aclosing(self._attempts(job, answer, record)) as responses:
                async for response in responses:
                    record.sending(response)
                    yield response
            yield answer.usage()

    async def _attempts(
        self, job: Job, answer: Answer, record: RequestRecord
    ) -> AsyncGenerator[pb.GenerateResponse, None]:
        """What breaks with a worker is run again from the prompt, elsewhere or there: the answer tells nothing twice.

        Raises the last failure after `_ATTEMPTS`, or when nobody is there to try again.
        """
        failure: WorkerFailedError | None = None
        shunned: set[Worker | None] = set()
        for number in range(_ATTEMPTS):
            demand, chosen = self._plan(job, shunned, failure)
            record.planned(job, chosen, answer)
            attempt = Attempt(
                job,
                chosen,
                answer,
                number=number,
                fingerprint=self._text.fingerprint,
                links=self._links,
                tasks=self._tasks,
            )
            try:
                async with aclosing(attempt.run(demand)) as responses:
                    async for response in responses:
                        yield response
                return
            except WorkerFailedError as error:
                failure = error
                if answer.done:
                    return
                record.attempt_failed(error)
                shunned |= {chosen.prefill, chosen.decode}
        if failure is not None:
            raise failure

    def _plan(
        self, job: Job, shunned: Collection[Worker | None], failure: WorkerFailedError | None
    ) -> tuple[Demand, Plan]:
        """Without the workers that a job has failed with, if others can serve it.

        Raises `failure`, if there was one, rather than that nobody is left.
        """
        with span("plan") as planning:
            demand, available = self._demand(job), self._fleet.available
            others = [worker for worker in available if worker not in shunned]
            try:
                chosen = self._cheapest(demand, others) or plan(demand, available, self._config.policy)
            except UnavailableError:
                if failure is not None:
                    raise failure from None
                raise
            planning.set(plan_attributes(chosen))
        return demand, chosen

    def _cheapest(self, demand: Demand, workers: Sequence[Worker]) -> Plan | None:
        try:
            return plan(demand, workers, self._config.policy)
        except UnavailableError:
            return None

    def _demand(self, job: Job) -> Demand:
        """A request for prompt log-probabilities reuses nothing; of a prompt, one token is always computed."""
        tokens = len(job.prompt_ids)
        geometry = self._fleet.geometry
        if geometry is None or job.sampling.prompt_logprobs is not None:
            return Demand(tokens, job.sampling.n)
        salt = cache_salt(self._text.fingerprint, geometry.dtype, geometry.page_size)
        chain = page_hashes(salt, job.prompt_ids, geometry.page_size)
        pages = self._fleet.prefixes.longest_prefixes(chain)
        cached = {worker: min(count * geometry.page_size, tokens - 1) for worker, count in pages.items()}
        return Demand(tokens, job.sampling.n, cached)

    @contextmanager
    def _admitted(self, request_id: str) -> Iterator[None]:
        """Room for one request, until it has ended."""
        if self.draining:
            raise UnavailableError("the router is stopping", retry_after=RETRY_AFTER)
        if len(self._running) >= self._config.queue:
            raise OverloadedError(
                f"the router holds {len(self._running)} requests, which is its bound", retry_after=RETRY_AFTER
            )
        check_request_id(request_id)
        if request_id in self._running:
            raise InvalidRequestError(f"request {request_id} is running already", param="request_id")
        self._running.add(request_id)
        try:
            yield
        finally:
            self._running.discard(request_id)
