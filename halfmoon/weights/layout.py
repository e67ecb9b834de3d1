"""Which tensors a model of the Llama family must have, so that a checkpoint can be judged before it is loaded."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from halfmoon.errors import ModelError
from halfmoon.weights.architectures import architecture_of, attention_biases
from halfmoon.weights.checkpoint import TensorInfo

Shape = tuple[int, ...]

_REQUIRED = (
    "hidden_size",
    "intermediate_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "rms_norm_eps",
    "vocab_size",
)
_OPTIONAL = ("head_dim", "num_key_value_heads")
_MISTAKES_SHOWN = 5


def expected_shapes(config: Mapping[str, Any]) -> dict[str, Shape]:
    """Names and shapes of the tensors that a model with this Hugging Face config is made of. Raises ModelError."""
    architecture = architecture_of(config)
    _require_sound(config)
    hidden, vocabulary = int(config["hidden_size"]), int(config["vocab_size"])
    shapes: dict[str, Shape] = {"model.embed_tokens.weight": (vocabulary, hidden), "model.norm.weight": (hidden,)}
    if not config.get("tie_word_embeddings", False):
        shapes["lm_head.weight"] = (vocabulary, hidden)
    layer = _layer_shapes(config, qk_norm=architecture.qk_norm)
    for index in range(int(config["num_hidden_layers"])):
        shapes.update({f"model.layers.{index}.{name}": shape for name, shape in layer.items()})
    return shapes


def check_layout(path: Path, config: Mapping[str, Any], tensors: Mapping[str, TensorInfo]) -> None:
    """Raise one ModelError that names the tensors which are missing or have another shape than the config says."""
    mistakes = []
    for name, shape in expected_shapes(config).items():
        info = tensors.get(name)
        if info is None:
            mistakes.append(f"{name} is missing")
        elif info.shape != shape:
            mistakes.append(f"{name} has shape {list(info.shape)}, expected {list(shape)}")
    if mistakes:
        more = f" and {len(mistakes) - _MISTAKES_SHOWN} more" if len(mistakes) > _MISTAKES_SHOWN else ""
        raise ModelError(
            f"{path} does not fit its config: {'; '.join(mistakes[:_MISTAKES_SHOWN])}{more}; "
            "download or copy the model again, with the config that belongs to it"
        )


def head_dim(config: Mapping[str, Any]) -> int:
    """Size of one attention head."""
    return int(config.get("head_dim") or int(config["hidden_size"]) // int(config["num_attention_heads"]))


def kv_heads(config: Mapping[str, Any]) -> int:
    """Number of heads that keys and values have."""
    return int(config.get("num_key_value_heads") or config["num_attention_heads"])


def _require_sound(config: Mapping[str, Any]) -> None:
    present = [key for key in _OPTIONAL if config.get(key) is not None]
    unsound = [key for key in (*_REQUIRED, *present) if not _is_positive(config.get(key))]
    if unsound:
        raise ModelError(f"config.json lacks a sound {', '.join(unsound)}: use the config.json of the model")
    heads, keys = int(config["num_attention_heads"]), kv_heads(config)
    if heads % keys:
        raise ModelError(f"{heads} attention heads cannot share {keys} heads of keys: use the config.json of the model")


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and value > 0


def _layer_shapes(config: Mapping[str, Any], *, qk_norm: bool) -> dict[str, Shape]:
    hidden, inner = int(config["hidden_size"]), int(config["intermediate_size"])
    size = head_dim(config)
    queries, keys = int(config["num_attention_heads"]) * size, kv_heads(config) * size
    shapes: dict[str, Shape] = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (queries, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    qkv_bias, output_bias = attention_biases(config)
    if qkv_bias:
        shapes.update({f"self_attn.{name}_proj.bias": (rows,) for name, rows in _qkv(queries, keys)})
    if output_bias:
        shapes["self_attn.o_proj.bias"] = (hidden,)
    if qk_norm:
        shapes.update({f"self_attn.{name}_norm.weight": (size,) for name in "qk"})
    return shapes


def _qkv(queries: int, keys: int) -> tuple[tuple[str, int], ...]:
    return ("q", queries), ("k", keys), ("v", keys)
