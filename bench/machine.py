"""The machine that the client runs on, and the versions there."""

import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("halfmoon", "aiohttp", "uvloop", "jax", "numpy")


@dataclass(frozen=True, slots=True)
class Machine:
    """`cores` are those that this process may use, `memory_gib` the machine's memory."""

    system: str
    processor: str
    cores: int
    memory_gib: float
    python: str
    packages: dict[str, str]


def describe_machine() -> Machine:
    """This machine."""
    return Machine(
        system=f"{platform.system()} {platform.release()}",
        processor=_processor(Path("/proc/cpuinfo")),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        python=platform.python_version(),
        packages=dict(_versions()),
    )


def _processor(cpuinfo: Path) -> str:
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.machine()


def _versions() -> list[tuple[str, str]]:
    found = []
    for package in _PACKAGES:
        try:
            found.append((package, version(package)))
        except PackageNotFoundError:
            continue
    return found
