"""The Llama family as NNX modules.

Activations are transposed, [features, tokens]: the checkpoint's own [out, in] weights then multiply from the left, and
one copy of them is fast for one token as for a chunk of hundreds. The modules know nothing of pages: `attend`
writes the new keys and values and reads the cached ones.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array
from jax.typing import DTypeLike
from numpy.typing import NDArray

from halfmoon.kernels.matmul import matmul, matmul_transposed
from halfmoon.models.llama.config import LlamaConfig
from halfmoon.weights.rope_scaling import rope_frequencies

Attend = Callable[[int, Array, Array, Array], Array]
"""(layer, q [heads, head_dim, T], k [kv_heads, head_dim, T], v likewise) -> [heads, head_dim, T]."""


class Linear(nnx.Module):
    """y [out, T] = W [out, in] @ x [in, T] + b [out]."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool = False, dtype: DTypeLike) -> None:
        self.weight = nnx.Param(jnp.zeros((outputs, inputs), dtype))
        self.bias = nnx.Param(jnp.zeros((outputs,), dtype)) if bias else None

    def __call__(self, x: Array) -> Array:
        (y,) = project(x, self)
        return y


def project(x: Array, *layers: Linear) -> tuple[Array, ...]:
    """What each of several layers makes of the same x [in, T]."""
    products = matmul(x, *(layer.weight[...] for layer in layers))
    return tuple(
        y if layer.bias is None else y + layer.bias[...][:, None] for y, layer in zip(products, layers, strict=True)
    )


class RMSNorm(nnx.Module):
    """Root-mean-square norm over the features: axis -2 of [..., features, T]; computed in float32."""

    def __init__(self, features: int, eps: float, *, dtype: DTypeLike) -> None:
        self.weight = nnx.Param(jnp.ones((features,), dtype))
        self.eps = eps

    def __call__(self, x: Array) -> Array:
        x32 = x.astype(jnp.float32)
        scale = jax.lax.rsqrt(jnp.mean(jnp.square(x32), axis=-2, keepdims=True) + self.eps)
        return (x32 * scale).astype(x.dtype) * self.weight[...][:, None]


@lru_cache(maxsize=8)
def inverse_frequencies(config: LlamaConfig) -> NDArray[np.float32]:
    """Radians a position of each rotated pair [head_dim / 2], scaled as the config says; computed in float64."""
    half = config.head_dim // 2
    frequencies = rope_frequencies(config.rope_theta, half)
    if config.rope_scaling is not None:
        frequencies = frequencies / config.rope_scaling.divisors(config.rope_theta, half)
    return frequencies.astype(np.float32)


class Rotation(NamedTuple):
    """Cosines and sines [head_dim / 2, T] of the angles by which queries and keys are turned."""

    cos: Array
    sin: Array


def rotation(positions: Array, config: LlamaConfig) -> Rotation:
    """The rotation at positions [T]; the barrier keeps XLA from computing it anew for every head of every layer."""
    angle = inverse_frequencies(config)[:, None] * positions[None, :].astype(jnp.float32)
    return Rotation(*jax.lax.optimization_barrier((jnp.cos(angle), jnp.sin(angle))))


def rope(x: Array, turn: Rotation) -> Array:
    """Rotary embedding of x [heads, head_dim, T]; halves rotated as in Hugging Face's models."""
    half = x.shape[-2] // 2
    first, second = x[:, :half].astype(jnp.float32), x[:, half:].astype(jnp.float32)
    turned = [first * turn.cos - second * turn.sin, second * turn.cos + first * turn.sin]
    return jnp.concatenate(turned, axis=1).astype(x.dtype)


class Attention(nnx.Module):
    """Grouped-query attention around `attend`."""

    def __init__(self, config: LlamaConfig, *, dtype: DTypeLike) -> None:
        self.config = config
        heads, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.q_proj = Linear(config.hidden, heads, bias=config.qkv_bias, dtype=dtype)
        self.k_proj = Linear(config.hidden, kv, bias=config.qkv_bias, dtype=dtype)
        self.v_proj = Linear(config.hidden, kv, bias=config.qkv_bias, dtype=dtype)
        self.o_proj = Linear(heads, config.hidden, bias=config.output_bias, dtype=dtype)
        self.q_norm = RMSNorm(config.head_dim, config.norm_eps, dtype=dtype) if config.qk_norm else None
        self.k_norm = RMSNorm(config.head_dim, config.norm_eps, dtype=dtype) if config.qk_norm else None

    def __call__(self, x: Array, turn: Rotation, layer: int, attend: Attend) -> Array:
        config, tokens = self.config, x.shape[-1]
        q, k, v = (
            each.reshape(-1, config.head_dim, tokens) for each in project(x, self.q_proj, self.k_proj, self.v_proj)
        )
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        return self.o_proj(attend(layer, rope(q, turn), rope(k, turn), v).reshape(-1, tokens))


class MLP(nnx.Module):
    """SwiGLU."""

    def __init__(self, config: LlamaConfig, *, dtype: DTypeLike) -> None:
        self.gate_proj = Linear(config.hidden, config.intermediate, dtype=dtype)
        self.up_proj = Linear(config.hidden, config.intermediate, dtype=dtype)
        self.down_proj = Linear(config.intermediate, config.hidden, dtype=dtype)

    def __call__(self, x: Array) -> Array:
        gate, up = project(x, self.gate_proj, self.up_proj)
        return self.down_proj(jax.nn.silu(gate) * up)


class Layer(nnx.Module):
    """One decoder layer with its residuals."""

    def __init__(self, config: LlamaConfig, *, dtype: DTypeLike) -> None:
        self.input_layernorm = RMSNorm(config.hidden, config.norm_eps, dtype=dtype)
        self.self_attn = Attention(config, dtype=dtype)
        self.post_attention_layernorm = RMSNorm(config.hidden, config.norm_eps, dtype=dtype)
        self.mlp = MLP(config, dtype=dtype)

    def __call__(self, x: Array, turn: Rotation, layer: int, attend: Attend) -> Array:
        x = x + self.self_attn(self.input_layernorm(x), turn, layer, attend)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nnx.Module):
    """Embedding, layers, final norm and head; attribute names are those of Hugging Face's checkpoints."""

    def __init__(self, config: LlamaConfig, *, dtype: DTypeLike = jnp.float32) -> None:
        self.config = config
        self.embed_tokens = nnx.Param(jnp.zeros((config.vocab_size, config.hidden), dtype))
        self.layers = nnx.List([Layer(config, dtype=dtype) for _ in range(config.layers)])
        self.norm = RMSNorm(config.hidden, config.norm_eps, dtype=dtype)
        self.lm_head = None if config.tied_head else nnx.Param(jnp.zeros((config.vocab_size, config.hidden), dtype))

    def __call__(self, token_ids: Array, positions: Array, attend: Attend) -> Array:
        """Final hidden states [hidden, T] of token_ids [T] at positions [T]."""
        x = self.embed_tokens[...][token_ids].T
        turn = rotation(positions, self.config)
        for index, layer in enumerate(self.layers):
            x = layer(x, turn, index, attend)
        return self.norm(x)

    def logits(self, hidden: Array) -> Array:
        """Float32 logits [R, vocab] of hidden states [hidden, R]."""
        head = self.embed_tokens if self.lm_head is None else self.lm_head
        return matmul_transposed(hidden, head[...])
