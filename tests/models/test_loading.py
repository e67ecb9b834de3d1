"""A model is the same from every format, and a checkpoint that does not fit is described by one complete error."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from halfmoon.errors import ModelError
from halfmoon.models import load_model
from halfmoon.models.llama import Llama
from halfmoon.weights import export_safetensors, open_checkpoint
from tests.models.families import FAMILIES, hf_config, make_weights, write_checkpoint, write_gguf
from tests.models.memory import MemoryCheckpoint


def leaves(model: Llama) -> dict[str, jax.Array]:
    """Parameters by dotted path."""
    return {".".join(map(str, path)): leaf[...] for path, leaf in nnx.to_flat_state(nnx.state(model))}


def assert_same_model(left: Llama, right: Llama) -> None:
    assert left.config == right.config
    assert leaves(left).keys() == leaves(right).keys()
    for path, leaf in leaves(left).items():
        np.testing.assert_array_equal(leaf, leaves(right)[path])


@pytest.mark.parametrize("family", FAMILIES)
def test_folder_gguf_and_export_give_the_same_model(family: str, tmp_path: Path) -> None:
    gguf = open_checkpoint(write_gguf(family, tmp_path / "model.gguf"))
    export_safetensors(gguf, tmp_path / "exported")
    model = load_model(gguf)
    assert_same_model(model, load_model(open_checkpoint(write_checkpoint(family, tmp_path / "folder"))))
    assert_same_model(model, load_model(open_checkpoint(tmp_path / "exported")))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_tensor_has_its_place(family: str) -> None:
    loaded = leaves(load_model(MemoryCheckpoint(family)))
    weights = {name.removeprefix("model."): tensor for name, tensor in make_weights(family).items()}
    renamed = {"embed_tokens.weight": "embed_tokens", "lm_head.weight": "lm_head"}
    assert {renamed.get(name, name) for name in weights} == loaded.keys()
    for name, tensor in weights.items():
        np.testing.assert_array_equal(loaded[renamed.get(name, name)], tensor)


def test_weights_take_the_type_that_is_asked_for() -> None:
    model = load_model(MemoryCheckpoint("qwen3"), dtype=jnp.bfloat16)
    assert {leaf.dtype for leaf in leaves(model).values()} == {jnp.dtype(jnp.bfloat16)}


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("bfloat16", 2)])
def test_progress_counts_the_bytes_of_the_model_tensor_by_tensor(dtype: str, size: int) -> None:
    checkpoint = MemoryCheckpoint("smollm")
    seen: list[tuple[int, int]] = []
    load_model(checkpoint, dtype=dtype, progress=lambda done, total: seen.append((done, total)))
    sizes = [size * tensor.size for tensor in checkpoint.tensors.values()]
    assert seen == [(sum(sizes[: index + 1]), sum(sizes)) for index in range(len(sizes))]


def test_tensors_without_effect_are_ignored() -> None:
    checkpoint = MemoryCheckpoint("smollm")
    checkpoint.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(4, np.float32)
    checkpoint.tensors["lm_head.weight"] = checkpoint.tensors["model.embed_tokens.weight"]
    assert_same_model(load_model(checkpoint), load_model(MemoryCheckpoint("smollm")))


def test_unknown_and_missing_tensors_are_named_together() -> None:
    checkpoint = MemoryCheckpoint("llama")
    del checkpoint.tensors["model.layers.0.mlp.up_proj.weight"], checkpoint.tensors["lm_head.weight"]
    checkpoint.tensors["model.layers.2.mlp.up_proj.weight"] = np.ones(1, np.float32)
    checkpoint.tensors["visual.weight"] = np.ones(1, np.float32)
    with pytest.raises(ModelError) as caught:
        load_model(checkpoint)
    message = str(caught.value)
    assert "\n" not in message
    for part in (
        "model.layers.2.mlp.up_proj.weight is not part of the model",
        "visual.weight is not part of the model",
        "layers.0.mlp.up_proj.weight is missing",
        "lm_head is missing",
    ):
        assert part in message


def test_wrong_shapes_are_named_together() -> None:
    checkpoint = MemoryCheckpoint("llama")
    for name in ("model.norm.weight", "model.layers.1.self_attn.k_proj.weight"):
        checkpoint.tensors[name] = checkpoint.tensors[name][:-1]
    with pytest.raises(ModelError, match=r"memory does not fit its config") as caught:
        load_model(checkpoint)
    assert "model.norm.weight has shape [63], expected [64]" in str(caught.value)
    assert "model.layers.1.self_attn.k_proj.weight has shape [31, 64], expected [32, 64]" in str(caught.value)


def test_of_many_mistakes_five_are_shown_and_the_rest_counted() -> None:
    checkpoint = MemoryCheckpoint("llama")
    for index in range(12):
        checkpoint.tensors[f"extra.{index}"] = np.ones(1, np.float32)
    with pytest.raises(ModelError, match=r"\(and 7 more\)"):
        load_model(checkpoint)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_attention_bias_asks_for_a_bias_on_the_output_too(family: str) -> None:
    with pytest.raises(ModelError) as caught:
        load_model(MemoryCheckpoint(family, attention_bias=True))
    assert "layers.0.self_attn.q_proj.bias is missing" in str(caught.value)
    checkpoint = MemoryCheckpoint("llama_bias")
    checkpoint.tensors["model.layers.1.self_attn.o_proj.bias"] = np.ones(63, np.float32)
    with pytest.raises(ModelError, match=r"o_proj.bias has shape \[63\], expected \[64\]"):
        load_model(checkpoint)


def test_a_folder_without_the_outputs_bias_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    folder = write_checkpoint("qwen2", tmp_path)
    as_llama = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "attention_bias": True}
    (folder / "config.json").write_text(json.dumps(hf_config("qwen2") | as_llama))
    with pytest.raises(ModelError, match=r"model.layers.0.self_attn.o_proj.bias is missing"):
        open_checkpoint(folder)
