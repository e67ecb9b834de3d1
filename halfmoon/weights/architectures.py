"""The architectures that can be served, under the names that each file format gives them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from halfmoon.errors import ModelError


@dataclass(frozen=True, slots=True)
class Architecture:
    """One member of the Llama family.

    `name` is Hugging Face's class, `model_type` its config's key and also GGUF's `general.architecture`, unless
    `in_gguf` is false: GGUF files then name another member with the same arithmetic. Its attention may have norms on
    q, k; with `qkv_bias` it has biases on q, k, v and no others, else the config's `attention_bias` switches those on
    q, k, v and the output. `slides`: the config may limit attention to a window. `interleaved_in_gguf`: GGUF files
    store the rows of q and k in pairs.
    """

    name: str
    model_type: str
    qkv_bias: bool = False
    qk_norm: bool = False
    slides: bool = False
    in_gguf: bool = True
    interleaved_in_gguf: bool = False


ARCHITECTURES = (
    Architecture("LlamaForCausalLM", "llama", interleaved_in_gguf=True),
    Architecture("MistralForCausalLM", "mistral", slides=True, in_gguf=False),
    Architecture("Qwen2ForCausalLM", "qwen2", qkv_bias=True),
    Architecture("Qwen3ForCausalLM", "qwen3", qk_norm=True),
)


def architecture_of(config: Mapping[str, Any]) -> Architecture:
    """The architecture that a Hugging Face config names. Raises ModelError that names any other one."""
    names = config.get("architectures") or []
    model_type = config.get("model_type")
    for architecture in ARCHITECTURES:
        if model_type == architecture.model_type and (not names or architecture.name in names):
            return architecture
    raise _unsupported(", ".join(map(str, names)) or str(model_type))


def attention_biases(config: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether a model with this config has biases on q, k, v, and on the attention's output. Raises ModelError."""
    fixed, switch = architecture_of(config).qkv_bias, bool(config.get("attention_bias", False))
    return fixed or switch, switch and not fixed


def architecture_of_gguf(name: str) -> Architecture:
    """The architecture that a GGUF file's `general.architecture` names. Raises ModelError that names any other one."""
    for architecture in ARCHITECTURES:
        if architecture.in_gguf and name == architecture.model_type:
            return architecture
    raise _unsupported(name)


def _unsupported(name: str) -> ModelError:
    supported = ", ".join(f"{item.name} ({item.model_type})" for item in ARCHITECTURES)
    return ModelError(f"architecture {name} is not supported; supported are {supported}")
