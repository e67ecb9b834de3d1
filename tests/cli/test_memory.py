"""Memory: what there is."""

from pathlib import Path

from cli.preflight.memory import GIB, available_memory


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


def test_without_any_information_everything_is_available(tmp_path: Path) -> None:
    assert available_memory(tmp_path) > 1 << 50
