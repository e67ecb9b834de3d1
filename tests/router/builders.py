"""Workers and descriptions for tests of the pure core."""

from halfmoon.config import PageGeometry
from router.worker import Load, Role, State, Worker, WorkerDescription

GEOMETRY = PageGeometry(layers=2, kv_heads=1, page_size=16, head_dim=4, dtype="float32")
FINGERPRINT = "f" * 32


def description(
    worker_id: str,
    role: Role = Role.BOTH,
    *,
    incarnation: int = 1,
    geometry: PageGeometry = GEOMETRY,
    fingerprint: str = FINGERPRINT,
    max_model_len: int = 4096,
) -> WorkerDescription:
    """A worker as it registers."""
    return WorkerDescription(
        worker_id,
        incarnation,
        "127.0.0.1:1",
        role,
        fingerprint,
        geometry,
        max_model_len=max_model_len,
        kv_endpoint=f"{worker_id}:2",
    )


def worker(
    worker_id: str, *, queued: int = 0, running: int = 0, pages: tuple[int, int] = (1000, 1000), context: int = 4096
) -> Worker:
    """A ready worker whose id begins with its role; `pages` are total and free."""
    roles = {"p": Role.PREFILL, "d": Role.DECODE, "b": Role.BOTH}
    load = Load(running=running, pages_total=pages[0], pages_free=pages[1], prefill_tokens_queued=queued)
    return Worker(description(worker_id, roles[worker_id[0]], max_model_len=context), State.READY, 0.0, load)
