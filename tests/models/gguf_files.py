"""Writes small models as GGUF files, with the names and the row order that llama.cpp's converter gives them."""

import math
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, RopeScalingType
from numpy.typing import NDArray

from tests.models.families import CONTEXT, Spec, Weights

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    """GGUF's name of a Hugging Face tensor."""
    stem, kind = name.rsplit(".", 1)
    if not stem.startswith("model.layers."):
        return f"{_NAMES[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{_NAMES[part]}.{kind}"


def gguf_architecture(spec: Spec) -> str:
    """GGUF's name of the architecture; Mistral's models are stored as Llama's."""
    return "llama" if spec.model_type == "mistral" else spec.model_type


def llama3_divisors(spec: Spec) -> NDArray[np.float32]:
    """The table by which llama.cpp's converter writes Llama 3's scaling down, wavelength by wavelength."""
    scaling = {key: value for key, value in spec.rope_scaling.items() if isinstance(value, int | float)}
    context, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    divisors = []
    for pair in range(spec.head_dim // 2):
        wavelength = 2 * math.pi * spec.rope_theta ** (2 * pair / spec.head_dim)
        if wavelength < context / high:
            divisors.append(1.0)
        elif wavelength > context / low:
            divisors.append(factor)
        else:
            smooth = (context / wavelength - low) / (high - low)
            divisors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(divisors, np.float32)


def interleave_rows(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Llama.cpp's order: row i of a head's first half is followed by row i of its second half."""
    order: list[int] = []
    head_dim = len(weight) // heads
    for head in range(heads):
        for row in range(head_dim // 2):
            order += [head * head_dim + row, head * head_dim + head_dim // 2 + row]
    return weight[order]


def write_model(spec: Spec, weights: Weights, file: Path) -> None:
    """Write metadata and float32 tensors; only the architecture `llama` stores q and k interleaved."""
    writer = GGUFWriter(file, gguf_architecture(spec))
    writer.add_block_count(spec.layers)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(spec.hidden)
    writer.add_feed_forward_length(spec.inner)
    writer.add_head_count(spec.heads)
    writer.add_head_count_kv(spec.kv_heads)
    writer.add_key_length(spec.head_dim)
    writer.add_value_length(spec.head_dim)
    writer.add_rope_dimension_count(spec.head_dim)
    writer.add_rope_freq_base(spec.rope_theta)
    writer.add_layer_norm_rms_eps(spec.norm_eps)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    _add_rope_scaling(writer, spec)
    for name, tensor in weights.items():
        writer.add_tensor(gguf_name(name), _in_gguf_order(spec, name, tensor))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_rope_scaling(writer: GGUFWriter, spec: Spec) -> None:
    match spec.rope_scaling:
        case {"rope_type": "llama3"}:
            writer.add_tensor("rope_freqs.weight", llama3_divisors(spec))
        case {"rope_type": "linear", "factor": float(factor)}:
            writer.add_rope_scaling_type(RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(factor)


def _in_gguf_order(spec: Spec, name: str, tensor: NDArray[np.float32]) -> NDArray[np.float32]:
    if gguf_architecture(spec) != "llama":
        return tensor
    if ".q_proj." in name:
        return interleave_rows(tensor, spec.heads)
    if ".k_proj." in name:
        return interleave_rows(tensor, spec.kv_heads)
    return tensor
