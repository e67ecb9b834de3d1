"""Makes small GGUF files of which single parts can be left out or replaced."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from gguf import GGUFWriter
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

Value = str | int | float | bool | list[str] | list[int]
Tensor = NDArray[np.float32] | tuple[NDArray[np.uint8], GGMLQuantizationType]

HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY = 256, 256, 4, 2, 64, 32


def base_metadata(architecture: str = "llama") -> dict[str, Value]:
    """What a one-layer model of the architecture needs."""
    fields: dict[str, Value] = {
        "block_count": 1,
        "context_length": 128,
        "embedding_length": HIDDEN,
        "feed_forward_length": INNER,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10_000.0,
        "rope.dimension_count": HEAD_DIM,
    }
    return {f"{architecture}.{name}": value for name, value in fields.items()}


def base_tensors() -> dict[str, Tensor]:
    """Random float32 tensors of a one-layer llama."""
    random = np.random.RandomState(7)
    shapes = {
        "token_embd.weight": (VOCABULARY, HIDDEN),
        "output_norm.weight": (HIDDEN,),
        "output.weight": (VOCABULARY, HIDDEN),
        "blk.0.attn_norm.weight": (HIDDEN,),
        "blk.0.attn_q.weight": (HEADS * HEAD_DIM, HIDDEN),
        "blk.0.attn_k.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        "blk.0.attn_v.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        "blk.0.attn_output.weight": (HIDDEN, HEADS * HEAD_DIM),
        "blk.0.ffn_norm.weight": (HIDDEN,),
        "blk.0.ffn_gate.weight": (INNER, HIDDEN),
        "blk.0.ffn_up.weight": (INNER, HIDDEN),
        "blk.0.ffn_down.weight": (HIDDEN, INNER),
    }
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def build_gguf(
    path: Path,
    *,
    architecture: str = "llama",
    metadata: Mapping[str, Value | None] | None = None,
    tensors: Mapping[str, Tensor | None] | None = None,
) -> Path:
    """The base model with `metadata` and `tensors` added or replaced; None leaves one out."""
    writer = GGUFWriter(path, architecture)
    for key, value in {**base_metadata(architecture), **(metadata or {})}.items():
        if value is not None:
            _add_value(writer, key, value)
    for name, tensor in {**base_tensors(), **(tensors or {})}.items():
        if isinstance(tensor, tuple):
            writer.add_tensor(name, tensor[0], raw_dtype=tensor[1])
        elif tensor is not None:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_value(writer: GGUFWriter, key: str, value: Value) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)
