"""Writes any checkpoint as a Hugging Face folder of safetensors files."""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from halfmoon.errors import ModelError
from halfmoon.weights.checkpoint import StoredCheckpoint
from halfmoon.weights.progress import QUIET, Progress
from halfmoon.weights.safetensors_files import INDEX, SINGLE
from halfmoon.weights.safetensors_writer import DTYPES, PlannedTensor, write_safetensors

ExportDtype = Literal["float32", "float16", "bfloat16"]

SHARD_BYTES = 4 << 30
"""Largest file that an export writes, unless one tensor alone is larger."""

_TYPE_NAMES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
_TOKENIZER_FILES = (
    "added_tokens.json",
    "chat_template.jinja",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
)


def export_safetensors(
    checkpoint: StoredCheckpoint,
    folder: Path,
    *,
    dtype: ExportDtype | None = None,
    progress: Progress = QUIET,
    add_files: Callable[[Path], None] | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Write weights, `config.json`, `generation_config.json` and tokenizer files to `folder`, whole or not at all.

    `dtype` None keeps the stored types, with quantised tensors as float32. A folder's tokenizer files are copied. A
    GGUF file has none: `add_files` (the command line passes the tokenizer's `save`) is called with the unfinished
    folder before it gets its name. Memory holds one tensor at a time. Raises ModelError: `folder` is there and not
    empty, the disk is full or cannot be written, or a value does not fit float16.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ModelError(f"{folder} exists and is not empty: name a new folder to export to")
    plan = _plan(checkpoint, dtype)
    partial = folder.with_name(f".{folder.name}.partial-{os.getpid()}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _require_room(folder.parent, sum(tensor.nbytes for tensor in plan))
        partial.mkdir()
        _write_weights(checkpoint, partial, _split(plan, shard_bytes), progress)
        _write_configs(checkpoint, partial, plan)
        _copy_tokenizer(checkpoint.path, partial)
        if add_files is not None:
            add_files(partial)
        partial.replace(folder)
    except OSError as error:
        raise ModelError(f"cannot write {folder} ({error.strerror or error}): free the disk or name another") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _plan(checkpoint: StoredCheckpoint, dtype: ExportDtype | None) -> list[PlannedTensor]:
    chosen = None if dtype is None else _TYPE_NAMES[dtype]
    return [
        PlannedTensor(name, info.shape, chosen or (info.stored_type if info.stored_type in DTYPES else "F32"))
        for name, info in checkpoint.tensors.items()
    ]


def _split(plan: Sequence[PlannedTensor], limit: int) -> list[list[PlannedTensor]]:
    """Consecutive tensors of at most `limit` bytes together."""
    shards: list[list[PlannedTensor]] = []
    room = 0
    for tensor in plan:
        if not shards or tensor.nbytes > room:
            shards.append([])
            room = limit
        shards[-1].append(tensor)
        room -= tensor.nbytes
    return shards


def _require_room(parent: Path, needed: int) -> None:
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise ModelError(
            f"{parent} has {free / 1e6:.0f} MB free, the export needs {needed / 1e6:.0f} MB: free the disk"
        )


def _write_weights(
    checkpoint: StoredCheckpoint, folder: Path, shards: list[list[PlannedTensor]], progress: Progress
) -> None:
    total, weight_map = sum(tensor.nbytes for shard in shards for tensor in shard), {}
    values = _values(checkpoint, [tensor for shard in shards for tensor in shard], total, progress)
    for number, shard in enumerate(shards, 1):
        name = SINGLE if len(shards) == 1 else f"model-{number:05}-of-{len(shards):05}.safetensors"
        write_safetensors(folder / name, shard, (next(values) for _ in shard))
        weight_map.update({tensor.name: name for tensor in shard})
    if len(shards) > 1:
        _write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": weight_map})
    progress.advance(_label(checkpoint), total, total)


def _values(
    checkpoint: StoredCheckpoint, plan: list[PlannedTensor], total: int, progress: Progress
) -> Iterator[NDArray[Any]]:
    done = 0
    for tensor in plan:
        progress.advance(_label(checkpoint), done, total)
        yield _converted(checkpoint.read(tensor.name), tensor)
        done += tensor.nbytes


def _label(checkpoint: StoredCheckpoint) -> str:
    return f"Exporting {checkpoint.path.name}"


def _converted(value: NDArray[Any], tensor: PlannedTensor) -> NDArray[Any]:
    try:
        with np.errstate(over="raise"):
            return value.astype(DTYPES[tensor.type], copy=False)
    except FloatingPointError as error:
        raise ModelError(f"{tensor.name} has values beyond the range of float16: export as bfloat16") from error


def _write_configs(checkpoint: StoredCheckpoint, folder: Path, plan: Sequence[PlannedTensor]) -> None:
    largest = max(plan, key=lambda tensor: tensor.nbytes).type
    names = {short: name for name, short in _TYPE_NAMES.items()}
    config = {key: value for key, value in checkpoint.config.items() if key != "dtype"}
    _write_json(folder / "config.json", {**config, "torch_dtype": names[largest]})
    if checkpoint.generation_config:
        _write_json(folder / "generation_config.json", dict(checkpoint.generation_config))


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _copy_tokenizer(source: Path, folder: Path) -> None:
    if not source.is_dir():
        return
    for name in _TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
