"""From the names of GGUF tensors to Hugging Face's, and from GGUF's order of attention rows to Hugging Face's."""

import re
from typing import Any

from numpy.typing import NDArray

_WHOLE_MODEL = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_PER_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER_NAME = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_ROTATED = re.compile(r".*\.self_attn\.([qk])_proj\.(?:weight|bias)")


def hugging_face_name(name: str) -> str | None:
    """The Hugging Face name of a GGUF tensor; None for one that the Llama family does not have."""
    if name in _WHOLE_MODEL:
        return _WHOLE_MODEL[name]
    match = _LAYER_NAME.fullmatch(name)
    if match is None or match[2] not in _PER_LAYER:
        return None
    return f"model.layers.{match[1]}.{_PER_LAYER[match[2]]}.{match[3]}"


def rotated_projection(name: str) -> str | None:
    """`q` or `k` when the Hugging Face tensor `name` makes what the rotary embedding rotates, else None."""
    match = _ROTATED.fullmatch(name)
    return match[1] if match else None


def deinterleave_rows(weight: NDArray[Any], heads: int) -> NDArray[Any]:
    """Undo the row order of llama GGUFs: pairs (i, i + half) of each head lie side by side there, in halves here.

    `weight` is [heads * head_dim, ...]; the result is a new array of the same shape.
    """
    half = weight.shape[0] // heads // 2
    pairs = weight.reshape(heads, half, 2, *weight.shape[1:])
    return pairs.swapaxes(1, 2).reshape(weight.shape)
