"""The facts that `halfmoon models` shows."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from halfmoon.weights import describe, open_checkpoint
from tests.models.families import make_weights, write_checkpoint, write_gguf


def test_it_counts_what_the_files_hold(tmp_path: Path) -> None:
    path = write_gguf("smollm", tmp_path / "model.gguf")
    facts = describe(open_checkpoint(path))
    weights = make_weights("smollm")
    assert facts["architecture"] == "LlamaForCausalLM"
    assert facts["parameters"] == sum(tensor.size for tensor in weights.values())
    assert (facts["layers"], facts["heads"], facts["kv_heads"], facts["head_dim"]) == (3, 9, 3, 8)
    assert (facts["vocabulary"], facts["context_length"], facts["weights"]) == (300, 512, "F32")
    assert facts["size_on_disk"] == path.stat().st_size
    assert facts["kv_bytes_per_token"] == 3 * 3 * 2 * 8 * 4
    assert facts["fingerprint"] == open_checkpoint(path).fingerprint


def test_it_counts_a_repeated_tied_head_once_and_names_all_types(tmp_path: Path) -> None:
    folder = write_checkpoint("smollm", tmp_path)
    weights = make_weights("smollm")
    stored: dict[str, NDArray[Any]] = {name: tensor.astype(np.float16) for name, tensor in weights.items()}
    stored["lm_head.weight"] = stored["model.embed_tokens.weight"]
    stored["model.norm.weight"] = weights["model.norm.weight"]
    save_file(stored, folder / "model.safetensors")
    facts = describe(open_checkpoint(folder))
    assert facts["parameters"] == sum(tensor.size for tensor in weights.values())
    assert facts["weights"] == "F16, F32"
