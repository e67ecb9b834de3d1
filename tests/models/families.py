"""Small models of every family with seeded random weights, written as a Hugging Face folder or as a GGUF file.

The weights come from numpy's frozen legacy generator, so they are the same everywhere; the reference values in
`reference/` (see `make_reference.py`) were computed from them by Hugging Face transformers. This module knows nothing
of Halfmoon's own code: it is what that code is judged by.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

Weights = dict[str, NDArray[np.float32]]

VOCABULARY = 300
CONTEXT = 512


@dataclass(frozen=True, slots=True)
class Spec:
    """Dimensions of a small model, and what sets its family apart."""

    architecture: str
    model_type: str
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float
    norm_eps: float
    tied: bool
    qkv_bias: bool = False
    qk_norm: bool = False
    output_bias: bool = False
    rope_scaling: Mapping[str, object] = field(default_factory=dict)
    slides: bool = False


LLAMA3_SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
LINEAR_SCALING = {"rope_type": "linear", "factor": 4.0}

SPECS: Mapping[str, Spec] = {
    "llama": Spec("LlamaForCausalLM", "llama", 64, 96, 2, 4, 2, 16, 500_000.0, 1e-5, tied=False),
    "smollm": Spec("LlamaForCausalLM", "llama", 72, 96, 3, 9, 3, 8, 100_000.0, 1e-5, tied=True),
    "tinyllama": Spec("LlamaForCausalLM", "llama", 64, 88, 2, 8, 1, 8, 10_000.0, 1e-5, tied=False),
    "qwen2": Spec("Qwen2ForCausalLM", "qwen2", 96, 80, 2, 6, 2, 16, 1e6, 1e-6, tied=True, qkv_bias=True),
    "qwen3": Spec("Qwen3ForCausalLM", "qwen3", 48, 96, 3, 4, 2, 24, 1e6, 1e-6, tied=True, qk_norm=True),
    "llama_bias": Spec(
        "LlamaForCausalLM", "llama", 64, 80, 2, 4, 4, 16, 10_000.0, 1e-5, tied=True, qkv_bias=True, output_bias=True
    ),
    "mistral": Spec("MistralForCausalLM", "mistral", 64, 96, 2, 4, 2, 32, 1e6, 1e-5, tied=False, slides=True),
    "llama3": Spec(
        "LlamaForCausalLM", "llama", 64, 96, 2, 4, 2, 32, 500_000.0, 1e-5, tied=True, rope_scaling=LLAMA3_SCALING
    ),
    "llama_linear": Spec(
        "LlamaForCausalLM", "llama", 64, 80, 2, 4, 2, 16, 10_000.0, 1e-6, tied=True, rope_scaling=LINEAR_SCALING
    ),
}
FAMILIES: tuple[str, ...] = tuple(SPECS)


class ReferenceCase(TypedDict):
    """Logits that transformers computed: `logits[i]` (VOCABULARY floats) belong to the prompt's `positions[i]`."""

    prompt_token_ids: list[int]
    positions: list[int]
    logits: list[list[float]]


def load_reference(family: str) -> list[ReferenceCase]:
    """The committed reference values of a family."""
    content = json.loads(reference_path(family).read_text())
    assert content["weights_sha256"] == weights_digest(family), f"the weights of {family} changed: make_reference.py"
    cases: list[ReferenceCase] = content["cases"]
    return cases


def reference_path(family: str) -> Path:
    """Where the family's reference values are kept."""
    return Path(__file__).parent / "reference" / f"{family}.json"


def hf_config(family: str) -> dict[str, object]:
    """The `config.json` of the family's model."""
    spec = SPECS[family]
    return {
        "architectures": [spec.architecture],
        "model_type": spec.model_type,
        "vocab_size": VOCABULARY,
        "hidden_size": spec.hidden,
        "intermediate_size": spec.inner,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": spec.norm_eps,
        "rope_theta": spec.rope_theta,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": spec.tied,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "float32",
        **({"attention_bias": True} if spec.output_bias else {}),
        **({"rope_scaling": dict(spec.rope_scaling)} if spec.rope_scaling else {}),
        **({"sliding_window": None} if spec.slides else {}),
    }


def make_weights(family: str) -> Weights:
    """All tensors by Hugging Face name, scaled so that attention is neither flat nor sharp and logits deviate by 3."""
    spec = SPECS[family]
    random = np.random.RandomState(1000 + FAMILIES.index(family))

    def normal(scale: float, *shape: int) -> NDArray[np.float32]:
        return (scale * random.standard_normal(shape)).astype(np.float32)

    def linear(gain: float, rows: int, columns: int) -> NDArray[np.float32]:
        return normal(gain / columns**0.5, rows, columns)

    def norm(size: int) -> NDArray[np.float32]:
        return 1 + normal(0.1, size)

    queries, keys = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    weights = {"model.embed_tokens.weight": linear(3.0, VOCABULARY, spec.hidden)}
    for index in range(spec.layers):
        layer = {
            "input_layernorm.weight": norm(spec.hidden),
            "self_attn.q_proj.weight": linear(1.5, queries, spec.hidden),
            "self_attn.k_proj.weight": linear(1.5, keys, spec.hidden),
            "self_attn.v_proj.weight": linear(1.0, keys, spec.hidden),
            "self_attn.o_proj.weight": linear(1.0, spec.hidden, queries),
            "post_attention_layernorm.weight": norm(spec.hidden),
            "mlp.gate_proj.weight": linear(1.0, spec.inner, spec.hidden),
            "mlp.up_proj.weight": linear(1.0, spec.inner, spec.hidden),
            "mlp.down_proj.weight": linear(1.0, spec.hidden, spec.inner),
        }
        if spec.qkv_bias:
            layer |= {f"self_attn.{name}_proj.bias": normal(0.5, queries if name == "q" else keys) for name in "qkv"}
        if spec.output_bias:
            layer["self_attn.o_proj.bias"] = normal(0.5, spec.hidden)
        if spec.qk_norm:
            layer |= {f"self_attn.{name}_norm.weight": norm(spec.head_dim) for name in "qk"}
        weights |= {f"model.layers.{index}.{name}": tensor for name, tensor in layer.items()}
    weights["model.norm.weight"] = norm(spec.hidden)
    if not spec.tied:
        weights["lm_head.weight"] = linear(3.0, VOCABULARY, spec.hidden)
    return weights


def weights_digest(family: str) -> str:
    """SHA-256 over names and values, so that reference values are never compared with other weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(make_weights(family).items()):
        digest.update(name.encode())
        digest.update(tensor.tobytes())
    return digest.hexdigest()


def write_checkpoint(family: str, folder: Path) -> Path:
    """Write the model as a Hugging Face folder (config.json, model.safetensors in float32); returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(hf_config(family), indent=2))
    save_file(make_weights(family), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def write_gguf(family: str, file: Path) -> Path:
    """Write the same model as a GGUF file in float32, as llama.cpp's converter lays it out; returns the file."""
    from tests.models.gguf_files import write_model  # transformers' environment has no gguf

    write_model(SPECS[family], make_weights(family), file)
    return file
