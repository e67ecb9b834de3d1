"""A short name for the content of a checkpoint, made without reading it whole."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from halfmoon.errors import ModelError
from halfmoon.weights.checkpoint import TensorInfo

SAMPLE_BYTES = 1 << 20


def fingerprint(config: Mapping[str, Any], tensors: Mapping[str, TensorInfo], files: Sequence[Path]) -> str:
    """32 hex digits of config, tensor headers, and size, first and last MiB of each file; file names do not count."""
    digest = hashlib.blake2b(digest_size=16)
    headers = sorted((name, info.shape, info.stored_type) for name, info in tensors.items())
    digest.update(json.dumps([config, headers], sort_keys=True, default=str).encode())
    for path in files:
        try:
            _add_file(digest, path)
        except OSError as error:
            raise ModelError(f"cannot read {path}: {error.strerror}") from error
    return digest.hexdigest()


def _add_file(digest: "hashlib.blake2b", path: Path) -> None:
    with path.open("rb") as file:
        size = path.stat().st_size
        digest.update(size.to_bytes(8, "little"))
        digest.update(file.read(SAMPLE_BYTES))
        file.seek(max(0, size - SAMPLE_BYTES))
        digest.update(file.read(SAMPLE_BYTES))
