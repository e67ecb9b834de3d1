"""How much memory a worker needs, and how much there is."""

from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
GIB = 1 << 30

DEFAULT_KV_BYTES = GIB
"""A worker's KV cache where no flag says otherwise."""

PROCESS_BYTES = 600 * MIB
"""What a worker takes besides weights and KV: libraries, compiled programs, buffers of a step."""


@dataclass(frozen=True, slots=True)
class WorkerMemory:
    """What one worker takes, in bytes."""

    weights: int
    kv: int
    host_kv: int

    @property
    def total(self) -> int:
        """All of it, the process itself included."""
        return self.weights + self.kv + self.host_kv + PROCESS_BYTES


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that new processes can take: what the kernel says, or less where a control group allows less.

    `root` holds `proc` and `sys`. Where neither tells, the answer is so large that no check fails.
    """
    return min([_from_meminfo(root), *_from_cgroups(root)])


def _from_meminfo(root: Path) -> int:
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 1 << 62


def _from_cgroups(root: Path) -> list[int]:
    left: list[int] = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            mount = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        group = mount / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(mount):
                left += _left_in(folder, *names)
    return left


def _left_in(folder: Path, limit_name: str, usage_name: str, reclaimable_name: str) -> list[int]:
    limit, usage = _read(folder / limit_name).strip(), _read(folder / usage_name).strip()
    if not limit.isdigit() or not usage.isdigit():
        return []
    stat = dict(line.split(" ", 1) for line in _read(folder / "memory.stat").splitlines())
    return [max(0, int(limit) - int(usage) + int(stat.get(reclaimable_name, "0")))]


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
