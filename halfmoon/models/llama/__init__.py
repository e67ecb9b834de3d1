"""The Llama family: Llama, SmolLM, TinyLlama, Mistral, Qwen2 (biases on q, k, v) and Qwen3 (norms on q and k)."""

from halfmoon.models.llama.config import LlamaConfig
from halfmoon.models.llama.modeling import Llama
from halfmoon.models.llama.params import load_llama

__all__ = ["Llama", "LlamaConfig", "load_llama"]
