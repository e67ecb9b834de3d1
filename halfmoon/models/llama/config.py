"""The shape of a Llama-family model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from halfmoon.config import PageGeometry
from halfmoon.errors import ModelError
from halfmoon.weights.architectures import architecture_of, attention_biases
from halfmoon.weights.rope_scaling import RopeScaling, rope_scaling

_MISTRAL_WINDOW = 4096
"""What a Mistral config that does not mention its window means."""


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """Dimensions and switches; `layers`, `heads` and so on are counts, `hidden` and `head_dim` sizes in elements."""

    vocab_size: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float
    norm_eps: float
    max_model_len: int
    tied_head: bool
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    rope_scaling: RopeScaling | None = None

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> Self:
        """From a Hugging Face `config.json`. Raises ModelError for what this family does not compute."""
        architecture = architecture_of(config)
        _refuse_unsupported(config)
        _refuse_sliding_window(config)
        qkv_bias, output_bias = attention_biases(config)
        heads = int(config["num_attention_heads"])
        rope = config.get("rope_parameters") or {}
        return cls(
            vocab_size=int(config["vocab_size"]),
            hidden=int(config["hidden_size"]),
            intermediate=int(config["intermediate_size"]),
            layers=int(config["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or int(config["hidden_size"]) // heads),
            rope_theta=float(config.get("rope_theta") or rope.get("rope_theta") or 10_000.0),
            norm_eps=float(config["rms_norm_eps"]),
            max_model_len=int(config["max_position_embeddings"]),
            tied_head=bool(config.get("tie_word_embeddings", False)),
            qkv_bias=qkv_bias,
            output_bias=output_bias,
            qk_norm=architecture.qk_norm,
            rope_scaling=rope_scaling(config),
        )

    def geometry(self, page_size: int, dtype: str) -> PageGeometry:
        """The shape of this model's KV pages."""
        return PageGeometry(self.layers, self.kv_heads, page_size, self.head_dim, dtype)


def _refuse_unsupported(config: Mapping[str, Any]) -> None:
    activation = config.get("hidden_act", "silu")
    if activation != "silu":
        raise ModelError(f"activation {activation!r} is not supported; supported: silu")
    if config.get("mlp_bias"):
        raise ModelError("biases in the MLP are not supported: this model sets mlp_bias")


def _refuse_sliding_window(config: Mapping[str, Any]) -> None:
    """A window as long as the context hides nothing and is accepted."""
    if config.get("use_sliding_window"):
        raise ModelError("sliding-window attention is not supported: this model sets use_sliding_window")
    if not architecture_of(config).slides:
        return
    window, context = config.get("sliding_window", _MISTRAL_WINDOW), int(config["max_position_embeddings"])
    if window is not None and int(window) < context:
        raise ModelError(
            f"sliding-window attention is not supported: this model sees {window} of its {context} tokens at once; "
            "use a model whose config has sliding_window null"
        )
