"""Memory: what there is, and whether workers fit."""

from pathlib import Path

import pytest

from cli.preflight.memory import GIB, WorkerMemory, available_memory, check_memory
from halfmoon.errors import ConfigError

WORKER = WorkerMemory(weights=GIB, kv=GIB, host_kv=GIB)


def write(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)


MEMINFO = {"proc/meminfo": f"MemTotal: {9 << 20} kB\nMemAvailable: {8 << 20} kB\n"}


def test_available_memory_is_the_kernels_estimate(tmp_path: Path) -> None:
    write(tmp_path, MEMINFO)
    assert available_memory(tmp_path) == 8 * GIB


def test_a_control_group_of_version_2_lowers_it(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/a"
    write(tmp_path, MEMINFO)
    write(tmp_path, {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n"})
    write(tmp_path, {f"{group}/memory.max": f"{4 * GIB}\n", f"{group}/memory.current": f"{2 * GIB}\n"})
    write(tmp_path, {f"{group}/memory.stat": f"anon 5\ninactive_file {GIB}\n"})
    assert available_memory(tmp_path) == 3 * GIB


def test_a_control_group_of_version_1_lowers_it(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/memory/box"
    write(tmp_path, MEMINFO)
    write(tmp_path, {"proc/self/cgroup": "5:cpu,memory:/box\n4:pids:/box\n"})
    write(tmp_path, {f"{group}/memory.limit_in_bytes": f"{2 * GIB}\n", f"{group}/memory.usage_in_bytes": f"{GIB}\n"})
    assert available_memory(tmp_path) == GIB


def test_without_any_information_nothing_is_refused(tmp_path: Path) -> None:
    check_memory(WORKER, 1000, available_memory(tmp_path))


def test_workers_that_do_not_fit_are_refused_with_the_sum() -> None:
    check_memory(WORKER, 1, 4 * GIB)
    with pytest.raises(ConfigError, match=r"2 worker\(s\) need 7\.2 GiB \(1\.0 GiB weights.*4\.0 GiB is free"):
        check_memory(WORKER, 2, 4 * GIB)
