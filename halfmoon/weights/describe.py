"""What there is to say about a model without loading it."""

from collections import Counter
from collections.abc import Mapping

from halfmoon.weights.architectures import architecture_of
from halfmoon.weights.checkpoint import StoredCheckpoint
from halfmoon.weights.layout import head_dim, kv_heads

_FLOAT32_BYTES = 4


def describe(checkpoint: StoredCheckpoint) -> Mapping[str, str | int]:
    """Facts by name, in the order to show them.

    Counts and element sizes are plain numbers; `size_on_disk` and `kv_bytes_per_token` (keys and values of all layers
    in float32) are bytes; `context_length` is tokens; `weights` names the stored types, the one with most bytes first.
    """
    config = checkpoint.config
    layers, size, keys = int(config["num_hidden_layers"]), head_dim(config), kv_heads(config)
    return {
        "path": str(checkpoint.path),
        "architecture": architecture_of(config).name,
        "parameters": _parameters(checkpoint),
        "layers": layers,
        "hidden_size": int(config["hidden_size"]),
        "heads": int(config["num_attention_heads"]),
        "kv_heads": keys,
        "head_dim": size,
        "vocabulary": int(config["vocab_size"]),
        "context_length": int(config["max_position_embeddings"]),
        "weights": _stored_types(checkpoint),
        "size_on_disk": sum(path.stat().st_size for path in checkpoint.files),
        "kv_bytes_per_token": layers * keys * 2 * size * _FLOAT32_BYTES,
        "fingerprint": checkpoint.fingerprint,
    }


def _parameters(checkpoint: StoredCheckpoint) -> int:
    """Elements of all tensors; a head that shares the embedding counts once, even where the file repeats it."""
    tied = bool(checkpoint.config.get("tie_word_embeddings", False))
    return sum(info.elements for name, info in checkpoint.tensors.items() if not (tied and name == "lm_head.weight"))


def _stored_types(checkpoint: StoredCheckpoint) -> str:
    nbytes: Counter[str] = Counter()
    for info in checkpoint.tensors.values():
        nbytes[info.stored_type] += info.nbytes
    return ", ".join(name for name, _ in nbytes.most_common())
