"""Makes a Hugging Face config out of a GGUF file's metadata."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from halfmoon.errors import ModelError
from halfmoon.weights.architectures import Architecture, architecture_of_gguf
from halfmoon.weights.gguf_header import GgufHeader, MetadataValue

_SAMPLING = {
    "temperature": "general.sampling.temp",
    "top_p": "general.sampling.top_p",
    "top_k": "general.sampling.top_k",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}
_END_TOKENS = ("eos", "eot", "eom")


def gguf_architecture(path: Path, header: GgufHeader) -> Architecture:
    """The architecture of the file. Raises ModelError for one that is not supported, and for parts of a split file."""
    metadata = header.metadata
    if _integer(metadata.get("split.count", 1)) > 1:
        raise ModelError(f"{path} is one part of a split GGUF: merge the parts into one file first")
    name = metadata.get("general.architecture")
    if not isinstance(name, str):
        raise ModelError(f"{path} does not name its architecture (general.architecture): use another GGUF of the model")
    if _integer(metadata.get(f"{name}.expert_count", 0)) > 0:
        raise ModelError(f"architecture {name} with a mixture of experts is not supported; use a dense model")
    return architecture_of_gguf(name)


def config_from_gguf(path: Path, header: GgufHeader) -> dict[str, Any]:
    """The content of the `config.json` that the model would have. Raises ModelError when the metadata lack a value."""
    architecture = gguf_architecture(path, header)
    fields = _Fields(path, architecture.model_type, header.metadata)
    heads = fields.integer("attention.head_count")
    hidden = fields.integer("embedding_length")
    head_dim = fields.integer("attention.key_length", hidden // heads)
    _require_plain_attention(fields, head_dim)
    config: dict[str, Any] = {
        "architectures": [architecture.name],
        "model_type": architecture.model_type,
        "hidden_size": hidden,
        "num_hidden_layers": fields.integer("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": fields.integer("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "intermediate_size": fields.integer("feed_forward_length"),
        "hidden_act": "silu",
        "rms_norm_eps": fields.real("attention.layer_norm_rms_epsilon", 1e-6),
        "rope_theta": fields.real("rope.freq_base", 10_000.0),
        "vocab_size": _vocabulary(path, header),
        "max_position_embeddings": fields.integer("context_length"),
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "attention_bias": "blk.0.attn_q.bias" in header.tensors,
    }
    scaling = fields.text("rope.scaling.type", "none")
    if scaling not in ("none", ""):
        config["rope_scaling"] = {"rope_type": scaling, "factor": fields.real("rope.scaling.factor", 1.0)}
    config.update(_token_ids(header.metadata))
    return config


def generation_config_from_gguf(header: GgufHeader) -> dict[str, Any]:
    """The `generation_config.json` that the model would have: all end tokens, and sampling if the file names any."""
    metadata = header.metadata
    ends = [metadata[key] for key in (f"tokenizer.ggml.{kind}_token_id" for kind in _END_TOKENS) if key in metadata]
    config = _token_ids(metadata)
    if ends:
        config["eos_token_id"] = list(dict.fromkeys(map(_integer, ends)))
    for name, key in _SAMPLING.items():
        value = metadata.get(key)
        if isinstance(value, int | float):
            config[name] = _shortest(value)
    return config


def _require_plain_attention(fields: "_Fields", head_dim: int) -> None:
    if fields.integer("attention.value_length", head_dim) != head_dim:
        raise ModelError(f"{fields.path} has values of another size than its keys, which is not supported")
    if fields.integer("rope.dimension_count", head_dim) != head_dim:
        raise ModelError(f"{fields.path} rotates only a part of each head, which is not supported")


def _vocabulary(path: Path, header: GgufHeader) -> int:
    embedding = header.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelError(f"{path} lacks the tensor token_embd.weight: use another GGUF of the model")
    return embedding.shape[0]


def _token_ids(metadata: Mapping[str, MetadataValue]) -> dict[str, Any]:
    kinds = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
    keys = {name: f"tokenizer.ggml.{kind}_token_id" for name, kind in kinds.items()}
    return {name: _integer(metadata[key]) for name, key in keys.items() if key in metadata}


class _Fields:
    """The metadata of one architecture, by the names that follow its prefix."""

    def __init__(self, path: Path, prefix: str, metadata: Mapping[str, MetadataValue]) -> None:
        self.path = path
        self._prefix = prefix
        self._metadata = metadata

    def integer(self, name: str, default: int | None = None) -> int:
        value = self._get(name, default)
        if isinstance(value, list) and value and all(item == value[0] for item in value):
            value = value[0]
        if not isinstance(value, int) or value <= 0:
            raise self._unusable(name, value)
        return value

    def real(self, name: str, default: float) -> float:
        value = self._get(name, default)
        if not isinstance(value, int | float):
            raise self._unusable(name, value)
        return _shortest(value)

    def text(self, name: str, default: str) -> str:
        return str(self._get(name, default))

    def _get(self, name: str, default: MetadataValue | None) -> MetadataValue:
        value = self._metadata.get(f"{self._prefix}.{name}", default)
        if value is None:
            raise ModelError(f"{self.path} lacks the metadata {self._prefix}.{name}: use another GGUF of the model")
        return value

    def _unusable(self, name: str, value: MetadataValue) -> ModelError:
        shown = str(value)[:60]
        return ModelError(f"{self.path} has {self._prefix}.{name} = {shown}, which is not supported")


def _integer(value: MetadataValue) -> int:
    if not isinstance(value, int):
        raise ModelError(
            f"a GGUF file has {str(value)[:60]!r} where a whole number belongs: use another GGUF of the model"
        )
    return value


def _shortest(value: float) -> float | int:
    """The shortest decimal that is the same float32: 1e-05, not 9.999999747378752e-06."""
    return value if isinstance(value, int) else float(str(np.float32(value)))
