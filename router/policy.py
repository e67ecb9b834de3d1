"""Where a request goes. Pure: the same objects serve a router and a simulation.

Everything is weighed in prompt tokens: what a worker has still to compute, what of this prompt it does not hold, what
moving the KV is worth, and how much the requests that a decode worker already has would slow this one down.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from halfmoon.config import RETRY_AFTER
from halfmoon.errors import UnavailableError
from router.config import PolicySettings
from router.worker import Role, Worker

_NO_ROOM = 1e9
"""Outweighs everything: a worker without free pages is taken only when none has any."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a request needs. `cached` is the tokens of its prompt that each worker, by id, can reuse."""

    prompt_tokens: int
    choices: int = 1
    cached: Mapping[str, int] = field(default_factory=dict)

    def uncached(self, worker: Worker) -> int:
        """Prompt tokens that `worker` would have to compute."""
        return self.prompt_tokens - self.cached.get(worker.worker_id, 0)

    @property
    def positions(self) -> int:
        """Positions to hold when the answer begins."""
        return self.prompt_tokens + self.choices


@dataclass(frozen=True, slots=True)
class Plan:
    """`decode` serves the whole request where `prefill` is None. `reason` says why, for metrics and logs.

    The worker that computes the prompt is told of `source`, which has `source_tokens` of it in its prefix store.
    """

    prefill: Worker | None
    decode: Worker
    reason: str
    source: Worker | None = None
    source_tokens: int = 0

    @property
    def computing(self) -> Worker:
        """The worker that computes the prompt."""
        return self.prefill or self.decode


@dataclass(frozen=True, slots=True)
class _Option:
    plan: Plan
    cost: float


def plan(demand: Demand, workers: Sequence[Worker], settings: PolicySettings) -> Plan:
    """The cheapest way to serve `demand` on `workers`, which are available; ties go to the unsplit one
    that comes first.

    Raises UnavailableError, with a hint when to try again, where none can decode.
    """
    fitting = [worker for worker in workers if worker.description.max_model_len > demand.prompt_tokens]
    decoders = [worker for worker in fitting if worker.role is not Role.PREFILL]
    if not decoders:
        raise UnavailableError("no decode worker is ready", retry_after=RETRY_AFTER)
    splits = _splits(demand, fitting, decoders, settings)
    options = [*_wholes(demand, decoders, splits, settings), *splits]
    return _with_source(min(options, key=lambda option: option.cost).plan, demand, workers)


def _with_source(chosen: Plan, demand: Demand, workers: Sequence[Worker]) -> Plan:
    """Names the worker that has most of the prompt, if that is a page more than the computing worker has.

    A worker that decodes alone has its pages from others, and does not keep those.
    """
    computing, cached = chosen.computing, demand.cached
    others = [each for each in workers if each.role is not Role.DECODE and each.description.kv_endpoint]
    best = max(others, key=lambda each: cached.get(each.worker_id, 0), default=computing)
    tokens = cached.get(best.worker_id, 0)
    if tokens - cached.get(computing.worker_id, 0) < computing.description.geometry.page_size:
        return chosen
    return replace(chosen, source=best, source_tokens=tokens)


def _splits(
    demand: Demand, workers: Sequence[Worker], decoders: Sequence[Worker], settings: PolicySettings
) -> list[_Option]:
    """The best pair with a prefill worker, and the best of a worker for whole requests with a decode worker."""
    options = []
    for prefill_role, decode_roles in ((Role.PREFILL, {Role.DECODE, Role.BOTH}), (Role.BOTH, {Role.DECODE})):
        prefill = _least((_prefill_cost(demand, w), w) for w in workers if w.role is prefill_role)
        decode = _least(
            (_decode_cost(demand, w, settings) + _transfer_cost(demand, w, settings), w)
            for w in decoders
            if w.role in decode_roles
        )
        if prefill is not None and decode is not None:
            options.append(_Option(Plan(prefill[1], decode[1], "split"), prefill[0] + decode[0]))
    return options


def _wholes(
    demand: Demand, decoders: Sequence[Worker], splits: Sequence[_Option], settings: PolicySettings
) -> list[_Option]:
    """Workers that may serve the whole request."""
    queued = min((option.plan.prefill.prefill_tokens for option in splits if option.plan.prefill), default=None)
    options = []
    for worker in decoders:
        reason = _why_whole(demand, worker, queued, settings)
        if reason is not None:
            cost = _prefill_cost(demand, worker) + _decode_cost(demand, worker, settings)
            options.append(_Option(Plan(None, worker, reason), cost))
    return options


def _why_whole(demand: Demand, worker: Worker, queued: int | None, settings: PolicySettings) -> str | None:
    """Why `worker` may compute the prompt itself, or None; `queued` is what the prefill worker at hand has to do."""
    if worker.role is Role.BOTH:
        return "both"
    if demand.uncached(worker) <= settings.split_threshold:
        return "few_uncached"
    if queued is None:
        return "no_prefill_worker"
    if queued > settings.overload and worker.has_room(demand.positions):
        return "prefill_overloaded"
    return None


def _prefill_cost(demand: Demand, worker: Worker) -> float:
    return worker.prefill_tokens + demand.uncached(worker)


def _decode_cost(demand: Demand, worker: Worker, settings: PolicySettings) -> float:
    cost = settings.running_cost * (worker.requests + worker.used_share)
    return cost if worker.has_room(demand.positions) else cost + _NO_ROOM


def _transfer_cost(demand: Demand, worker: Worker, settings: PolicySettings) -> float:
    """Pages that the decode worker holds already are not moved."""
    return settings.split_threshold * demand.uncached(worker) / demand.prompt_tokens


def _least(costs: Iterable[tuple[float, Worker]]) -> tuple[float, Worker] | None:
    return min(costs, key=lambda pair: pair[0], default=None)
