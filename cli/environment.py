"""Environment variables that must be set before the libraries that read them are imported."""

import importlib.util
import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from halfmoon.weights.cache_folder import cache_folder

CORE_SHARE_VARIABLE = "HALFMOON_CORE_SHARE"
"""`INDEX:WORKERS:FILE`, set by `serve` for its workers: see `halfmoon.cores`."""

_QUIET = {
    "GRPC_VERBOSITY": "NONE",
    "GRPC_ENABLE_FORK_SUPPORT": "0",
    "GLOG_minloglevel": "2",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}


def has_tpu_library() -> bool:
    """Whether `libtpu` (the extra `tpu`) is installed."""
    return importlib.util.find_spec("libtpu") is not None


def default_dtype() -> str:
    """What weights and KV are kept in unless a flag says otherwise: CPUs compute bfloat16 slowly."""
    return "bfloat16" if has_tpu_library() else "float32"


def core_share(environ: Mapping[str, str] = os.environ) -> tuple[int, int, Path] | None:
    """(index, workers, file) from `CORE_SHARE_VARIABLE`; None where the worker shares no cores."""
    if CORE_SHARE_VARIABLE not in environ:
        return None
    index, workers, file = environ[CORE_SHARE_VARIABLE].split(":", 2)
    return int(index), int(workers), Path(file)


def prepare(environ: MutableMapping[str, str] = os.environ) -> None:
    """Silences the libraries' own chatter; what the user has set stays."""
    for name, value in _QUIET.items():
        environ.setdefault(name, value)


def prepare_jax(environ: MutableMapping[str, str] = os.environ) -> None:
    """Chooses JAX's platform and keeps what XLA compiles in the cache folder; what the user has set stays."""
    if not has_tpu_library():
        environ.setdefault("JAX_PLATFORMS", "cpu")
    environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache_folder() / "compiled"))
    environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
