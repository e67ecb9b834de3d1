"""A scripted worker in a process of its own: `python -m tests.router.worker_process ID ROUTER ANSWER`."""

import asyncio
import sys

from tests.router.cluster import ROLES
from tests.router.fakes import FakeWorker, Script


async def main(worker_id: str, router: str, answer: str) -> None:
    """Serves until killed."""
    worker = FakeWorker(worker_id, ROLES[worker_id[0]], Script([answer], pace=0.01), router)
    await worker.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
