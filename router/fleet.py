"""The workers known now. Pure: time is passed in."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from halfmoon.config import DEADLINES, PageGeometry
from halfmoon.errors import IncompatibleError, InvalidRequestError, UnknownWorkerError
from router.prefix_index import PrefixIndex
from router.worker import Load, State, Worker, WorkerDescription

STOPPED = "stopped"
"""Why a worker is gone that said so itself."""


@dataclass(frozen=True, slots=True)
class CacheChange:
    """A worker's prefix-cache delta; see `PrefixIndex.apply`."""

    sequence: int
    snapshot: bool
    stored: Iterable[bytes] = ()
    removed: Iterable[bytes] = ()


class Fleet:
    """Registration, heartbeats and death of workers, all of one model and one page geometry.

    `on_drop` is called with each worker that is no longer there: replaced, stopped, or silent for `dead_after` seconds.
    """

    def __init__(
        self,
        fingerprint: str,
        *,
        dead_after: float = DEADLINES.dead_after,
        on_drop: Callable[[Worker, str], None] = lambda worker, reason: None,
    ) -> None:
        self.prefixes = PrefixIndex()
        self._fingerprint = fingerprint
        self._dead_after = dead_after
        self._on_drop = on_drop
        self._workers: dict[str, Worker] = {}

    @property
    def workers(self) -> list[Worker]:
        """All workers, in the order of their ids."""
        return sorted(self._workers.values(), key=lambda worker: worker.worker_id)

    @property
    def available(self) -> list[Worker]:
        """Workers that may be given work, in the order of their ids."""
        return [worker for worker in self.workers if worker.available]

    @property
    def geometry(self) -> PageGeometry | None:
        """The page geometry of all workers; None while there are none."""
        first = next(iter(self._workers.values()), None)
        return first.description.geometry if first else None

    def register(self, description: WorkerDescription, state: State, now: float) -> Worker:
        """Adds a worker; another incarnation under its id is dropped.

        Raises IncompatibleError when model or page geometry differ, InvalidRequestError when the description lacks
        something.
        """
        _check_whole(description)
        self._check_fits(description)
        known = self._workers.get(description.worker_id)
        if known is not None:
            self._drop(known, "replaced by another incarnation")
        worker = Worker(description, state, now)
        self._workers[description.worker_id] = worker
        return worker

    def heartbeat(
        self, worker_id: str, incarnation: int, *, state: State, load: Load, cache: CacheChange | None, now: float
    ) -> bool:
        """Takes a report. True when the worker must send its whole prefix cache next.

        Raises UnknownWorkerError for an incarnation that is not registered.
        """
        worker = self._workers.get(worker_id)
        if worker is None or worker.description.incarnation != incarnation:
            raise UnknownWorkerError(f"worker {worker_id} with this incarnation is not registered")
        if state is State.STOPPED:
            self._drop(worker, STOPPED)
            return False
        worker.report(state, load, now)
        if cache is None:
            return False
        return not self.prefixes.apply(
            worker_id, cache.sequence, snapshot=cache.snapshot, stored=cache.stored, removed=cache.removed
        )

    def expire(self, now: float) -> None:
        """Drops workers that have been silent for too long."""
        for worker in self.workers:
            if now - worker.last_seen > self._dead_after:
                self._drop(worker, f"silent for {now - worker.last_seen:.1f} s")

    def context_limit(self, own: int) -> int:
        """Tokens that prompt and answer may have together: the least of `own` and what each worker can hold."""
        return min([own, *(worker.description.max_model_len for worker in self._workers.values())])

    def _drop(self, worker: Worker, reason: str) -> None:
        del self._workers[worker.worker_id]
        self.prefixes.drop(worker.worker_id)
        worker.gone = reason
        self._on_drop(worker, reason)

    def _check_fits(self, description: WorkerDescription) -> None:
        if description.fingerprint != self._fingerprint:
            raise IncompatibleError(
                f"worker {description.worker_id} serves model {description.fingerprint or '(none)'}, "
                f"this router {self._fingerprint}: start both with the same MODEL",
                param="model_fingerprint",
            )
        for other in self._workers.values():
            if other.worker_id != description.worker_id and other.description.geometry != description.geometry:
                raise IncompatibleError(
                    f"worker {description.worker_id} has pages of {description.geometry}, "
                    f"worker {other.worker_id} of {other.description.geometry}: page size and dtype must be equal",
                    param="geometry",
                )


def _check_whole(description: WorkerDescription) -> None:
    missing = [
        name
        for name, value in (
            ("worker_id", description.worker_id),
            ("incarnation", description.incarnation),
            ("address", description.address),
            ("max_model_len", description.max_model_len),
            ("geometry", description.geometry.page_size),
        )
        if not value
    ]
    if missing:
        raise InvalidRequestError(f"the registration lacks {', '.join(missing)}", param=missing[0])
