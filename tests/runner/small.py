"""A runner over the small Llama, whose caches have a size that nothing else in its programs has."""

from pathlib import Path

from halfmoon.models import load_model
from halfmoon.runner.buckets import BucketTable, PrefillBucket
from halfmoon.runner.runner import Runner, RunnerConfig
from halfmoon.weights import open_checkpoint
from tests.models.families import write_checkpoint

PAGE_SIZE = 16
BUCKETS = BucketTable((PrefillBucket(16, 8), PrefillBucket(128, 16)), (1, 3), (1, 4))
PAGES = 36
LAYERS, KV_HEADS, HEAD_DIM = 2, 2, 16
CACHE_SHAPE = (PAGES + 1, KV_HEADS, HEAD_DIM, PAGE_SIZE)
MAX_MODEL_LEN = 128


def make_runner(
    folder: Path,
    *,
    compiled: bool = True,
    decodes: bool = True,
    dtype: str = "float32",
    buckets: BucketTable = BUCKETS,
) -> Runner:
    """Over a model that is written to `folder`."""
    model = load_model(open_checkpoint(write_checkpoint("llama", folder)), dtype=dtype)
    geometry = model.config.geometry(PAGE_SIZE, dtype)
    runner = Runner(model, RunnerConfig(geometry, PAGES, MAX_MODEL_LEN, buckets, decodes))
    if compiled:
        runner.compile_all()
    return runner
