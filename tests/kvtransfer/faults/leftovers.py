"""What a process and its machine hold: for comparing before and after."""

import gc
import os
import re
import threading
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Leftovers:
    """Of this process: descriptors by kind, threads by name without number, mappings of host pools, children.

    `shared_memory` are our entries of /dev/shm.
    """

    descriptors: tuple[str, ...]
    threads: tuple[str, ...]
    mappings: int
    children: tuple[int, ...]
    shared_memory: tuple[str, ...]

    @classmethod
    def now(cls, *, with_descriptors: bool = True) -> "Leftovers":
        """After a garbage collection. asyncio's own pool of threads is not counted."""
        gc.collect()
        names = [re.sub(r"[-_]?\d+", "", thread.name) for thread in threading.enumerate()]
        threads = [name for name in names if not name.startswith("asyncio")]
        return cls(
            descriptors=tuple(sorted(_descriptors())) if with_descriptors else (),
            threads=tuple(sorted(threads)),
            mappings=Path("/proc/self/maps").read_text(encoding="utf-8").count("halfmoon-kv"),
            children=tuple(child.pid for child in psutil.Process().children()),
            shared_memory=tuple(sorted(name for name in os.listdir("/dev/shm") if "halfmoon" in name)),
        )


def _descriptors() -> list[str]:
    """Kinds, without the numbers of sockets and pipes, which change."""
    kinds = []
    for name in os.listdir("/proc/self/fd"):
        try:
            kinds.append(os.readlink(f"/proc/self/fd/{name}").split(":[")[0])
        except FileNotFoundError:
            continue  # the listing's own
    return kinds
