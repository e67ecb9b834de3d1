"""Fills a Llama from a checkpoint: one table of names, all mistakes reported at once."""

import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from halfmoon.errors import ModelError
from halfmoon.models.llama.config import LlamaConfig
from halfmoon.models.llama.modeling import Llama
from halfmoon.weights.checkpoint import Checkpoint

Progress = Callable[[int, int], None]
"""(bytes of weights loaded, bytes in all)."""

_PATTERNS = [
    (re.compile(r"model\.embed_tokens\.weight"), r"embed_tokens"),
    (re.compile(r"model\.norm\.weight"), r"norm.weight"),
    (re.compile(r"lm_head\.weight"), r"lm_head"),
    (re.compile(r"model\.(layers\.\d+\.\w+\.weight)"), r"\1"),
    (re.compile(r"model\.(layers\.\d+\.(?:self_attn|mlp)\.\w+\.(?:weight|bias))"), r"\1"),
]
_IGNORED = re.compile(r".*\.rotary_emb\.inv_freq")
_MISTAKES_SHOWN = 5


def target_path(name: str) -> str | None:
    """The dotted path in `Llama` of a checkpoint's tensor; None for one that the model does not have."""
    for pattern, path in _PATTERNS:
        match = pattern.fullmatch(name)
        if match:
            return match.expand(path)
    return None


def load_llama(checkpoint: Checkpoint, *, dtype: DTypeLike = jnp.float32, progress: Progress | None = None) -> Llama:
    """Reads tensor by tensor, so that no tensor is in memory twice but the one in hand. Raises ModelError."""
    config = LlamaConfig.from_hf(checkpoint.config)
    graph, state = nnx.split(nnx.eval_shape(lambda: Llama(config, dtype=dtype)))
    wanted = {".".join(map(str, path)): leaf for path, leaf in nnx.to_flat_state(state)}
    sources = _match(checkpoint, wanted)
    loaded: dict[str, jax.Array] = {}
    mistakes: list[str] = []
    sizes = {path: leaf.size * leaf.dtype.itemsize for path, leaf in wanted.items()}
    done, total = 0, sum(sizes.values())
    for path, name in sources.items():
        tensor, shape = checkpoint.read(name), wanted[path].shape
        if tensor.shape == shape:
            loaded[path] = jnp.asarray(tensor, dtype)
        else:
            mistakes.append(f"{name} has shape {list(tensor.shape)}, expected {list(shape)}")
        done += sizes[path]
        if progress is not None:
            progress(done, total)
    _report(checkpoint, mistakes)
    leaves = [(path, leaf.replace(loaded[".".join(map(str, path))])) for path, leaf in nnx.to_flat_state(state)]
    return nnx.merge(graph, nnx.from_flat_state(leaves))


def _match(checkpoint: Checkpoint, wanted: dict[str, jax.ShapeDtypeStruct]) -> dict[str, str]:
    sources: dict[str, str] = {}
    mistakes: list[str] = []
    for name in checkpoint.names():
        path = target_path(name)
        if path in wanted:
            sources[path] = name
        elif path != "lm_head" and not _IGNORED.fullmatch(name):  # a tied model may ship its head twice
            mistakes.append(f"{name} is not part of the model")
    mistakes.extend(f"{path} is missing" for path in wanted if path not in sources)
    _report(checkpoint, mistakes)
    return sources


def _report(checkpoint: Checkpoint, mistakes: list[str]) -> None:
    if not mistakes:
        return
    more = f" (and {len(mistakes) - _MISTAKES_SHOWN} more)" if len(mistakes) > _MISTAKES_SHOWN else ""
    raise ModelError(f"{checkpoint.path} does not fit its config: {'; '.join(mistakes[:_MISTAKES_SHOWN])}{more}")
