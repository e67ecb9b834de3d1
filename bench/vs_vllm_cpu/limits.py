"""What this machine can do at most: a large matrix product, and reading memory. Run it as a program: it prints JSON."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import numpy as np

from halfmoon.errors import UnavailableError

_SIDE = 2048
_STREAM_FLOATS = 1 << 27
_REPEATS = 7
_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Best of several tries, in float32 on all cores: operations and bytes a second."""

    flops: float
    bytes_per_second: float


def measure_limits() -> Limits:
    """Measures in a process of its own. Raises UnavailableError where that fails."""
    command = [sys.executable, "-m", "bench.vs_vllm_cpu.limits"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=True)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"the machine's limits cannot be measured: {error}") from None
    return Limits(**json.loads(done.stdout))


def _best_seconds(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def _flops() -> float:
    """The better of XLA's and numpy's product of two square matrices."""
    import jax
    import jax.numpy as jnp

    left = np.random.default_rng(0).random((_SIDE, _SIDE), dtype=np.float32)
    device = jnp.asarray(left)
    product = jax.jit(jnp.matmul)
    seconds = min(
        _best_seconds(lambda: left @ left),
        _best_seconds(lambda: product(device, device).block_until_ready()),
    )
    return 2.0 * _SIDE**3 / seconds


def _bytes_per_second() -> float:
    """Every core reads its part of an array that no cache holds: as dot products, or for the largest value."""
    cores = len(os.sched_getaffinity(0))
    parts = np.array_split(np.ones((_STREAM_FLOATS // 4096, 4096), np.float32), cores)
    vector = np.ones(4096, np.float32)
    with ThreadPoolExecutor(cores) as pool:
        seconds = min(
            _best_seconds(lambda: list(pool.map(lambda part: part @ vector, parts))),
            _best_seconds(lambda: list(pool.map(lambda part: part.max(), parts))),
        )
    return 4.0 * _STREAM_FLOATS / seconds


if __name__ == "__main__":
    print(json.dumps(asdict(Limits(_flops(), _bytes_per_second()))))
