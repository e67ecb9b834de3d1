"""Hugging Face folders as checkpoints, whole and broken."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from halfmoon.errors import ModelError
from halfmoon.weights import open_checkpoint
from tests.models.families import FAMILIES, hf_config, make_weights, write_checkpoint, write_gguf

INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint("llama", tmp_path / "model")


@pytest.fixture
def sharded(folder: Path) -> Path:
    """The same model in three shards."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    weight_map = {}
    for number, names in enumerate(np.array_split(sorted(weights), 3), 1):
        shard = f"model-{number:05}-of-00003.safetensors"
        save_file({name: weights[name] for name in names}, folder / shard)
        weight_map.update({str(name): shard for name in names})
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def edit_json(path: Path, **changes: object) -> None:
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


@pytest.mark.parametrize("family", FAMILIES)
def test_tensors_and_config_are_those_of_the_folder(family: str, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_checkpoint(family, tmp_path))
    weights = make_weights(family)
    assert sorted(checkpoint.names()) == sorted(weights)
    assert checkpoint.config == hf_config(family)
    for name, expected in weights.items():
        np.testing.assert_array_equal(checkpoint.read(name), expected)


def test_shards_are_found_through_the_index(sharded: Path) -> None:
    checkpoint = open_checkpoint(sharded)
    assert [path.name[:11] for path in checkpoint.files] == ["model-00001", "model-00002", "model-00003"]
    for name, expected in make_weights("llama").items():
        np.testing.assert_array_equal(checkpoint.read(name), expected)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_read_as_stored(folder: Path, dtype: type) -> None:
    halves: dict[str, NDArray[Any]] = {name: tensor.astype(dtype) for name, tensor in make_weights("llama").items()}
    save_file(halves, folder / "model.safetensors")
    tensor = open_checkpoint(folder).read("model.norm.weight")
    assert tensor.dtype == dtype
    np.testing.assert_array_equal(tensor, halves["model.norm.weight"])


def test_a_head_that_a_tied_model_repeats_is_allowed(tmp_path: Path) -> None:
    folder = write_checkpoint("smollm", tmp_path)
    weights = make_weights("smollm")
    save_file(weights | {"lm_head.weight": weights["model.embed_tokens.weight"]}, folder / "model.safetensors")
    assert "lm_head.weight" in open_checkpoint(folder).names()


def test_the_generation_config_is_read_where_there_is_one(folder: Path) -> None:
    assert open_checkpoint(folder).generation_config == {}
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 7]}')
    assert open_checkpoint(folder).generation_config == {"eos_token_id": [2, 7]}


def test_a_config_without_optional_keys_is_enough(folder: Path) -> None:
    edit_json(folder / "config.json", head_dim=None, architectures=None, bos_token_id=None)
    assert len(open_checkpoint(folder).names()) == len(make_weights("llama"))


def write_config(**changes: object) -> Callable[[Path], None]:
    return lambda folder: edit_json(folder / "config.json", **changes)


def truncate(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def drop_tensor(folder: Path) -> None:
    weights = make_weights("llama")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors")


def turn_tensor(folder: Path) -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    weights = make_weights("llama")
    save_file(weights | {name: np.ascontiguousarray(weights[name].T)}, folder / "model.safetensors")


def store_integers(folder: Path) -> None:
    weights: dict[str, NDArray[Any]] = dict(make_weights("llama"))
    weights["model.norm.weight"] = np.zeros(64, np.int8)
    save_file(weights, folder / "model.safetensors")


def only_pytorch(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def two_files(folder: Path) -> None:
    shutil.copy(folder / "model.safetensors", folder / "model-00002-of-00002.safetensors")
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")


def gguf_inside(folder: Path) -> None:
    (folder / "config.json").unlink()
    write_gguf("llama", folder / "tiny.gguf")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate, r"model\.safetensors is damaged or truncated \(.*\): download or copy it again"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b""), "damaged or truncated"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 64), "damaged or truncated"),
        (drop_tensor, r"does not fit its config: model\.layers\.1\.mlp\.up_proj\.weight is missing; download"),
        (turn_tensor, r"up_proj\.weight has shape \[64, 96\], expected \[96, 64\]; download"),
        (
            store_integers,
            r"tensor model\.norm\.weight in type I8, which is not supported; supported are F32, F16, BF16",
        ),
        (only_pytorch, "holds PyTorch weights only: convert them to safetensors"),
        (two_files, r"holds 2 safetensors files but no model\.safetensors\.index\.json"),
        (lambda folder: (folder / "model.safetensors").unlink(), "holds no weights"),
        (lambda folder: (folder / "config.json").unlink(), r"holds no config\.json: give a Hugging Face folder"),
        (gguf_inside, r"holds no config\.json, but tiny\.gguf: give that file"),
        (lambda folder: (folder / "config.json").write_text('{"model_'), r"config\.json is damaged"),
        (lambda folder: (folder / "config.json").write_text("[]"), r"config\.json holds no JSON object"),
        (write_config(hidden_size=None), r"config\.json lacks a sound hidden_size: use"),
        (write_config(num_attention_heads=0, head_dim="wide"), "lacks a sound num_attention_heads, head_dim"),
        (write_config(num_key_value_heads=3), "4 attention heads cannot share 3 heads of keys"),
        (write_config(num_hidden_layers=3), r"layers\.2\.input_layernorm\.weight is missing; .* and 4 more"),
        (write_config(quantization_config={"quant_method": "gptq"}), "quantised by gptq, which is not supported"),
        (
            write_config(architectures=["MambaForCausalLM"], model_type="mamba"),
            r"architecture MambaForCausalLM is not supported; supported are LlamaForCausalLM .*Qwen3ForCausalLM",
        ),
        (write_config(architectures=["LlamaForTokenClassification"]), "LlamaForTokenClassification is not supported"),
        (write_config(architectures=None, model_type=None), "architecture None is not supported"),
    ],
)
def test_a_broken_folder_is_one_line(folder: Path, damage: Callable[[Path], object], message: str) -> None:
    damage(folder)
    with pytest.raises(ModelError, match=message) as error:
        open_checkpoint(folder)
    assert "\n" not in error.value.message


def test_a_missing_shard_is_named(sharded: Path) -> None:
    (sharded / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ModelError, match=r"lacks 1 of its shards \(model-00002-of-00003\.safetensors\)"):
        open_checkpoint(sharded)


def test_a_shard_that_lacks_what_the_index_promises_is_named(sharded: Path) -> None:
    save_file({"other": np.zeros(1, np.float32)}, sharded / "model-00001-of-00003.safetensors")
    with pytest.raises(ModelError, match=r"its shards lack tensors that .* names \(lm_head\.weight, "):
        open_checkpoint(sharded)


def test_an_index_without_a_map_is_one_line(sharded: Path) -> None:
    (sharded / INDEX).write_text("{}")
    with pytest.raises(ModelError, match="holds no weight_map"):
        open_checkpoint(sharded)


def test_an_empty_folder_a_missing_path_and_a_single_shard_say_what_to_give(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path, message in [
        (tmp_path / "empty", "is empty: give a Hugging Face folder"),
        (tmp_path / "none", "does not exist: give a Hugging Face folder or a GGUF file"),
        (folder / "model.safetensors", "is one file of a model: give its folder"),
        (folder / "config.json", "is no GGUF file: give a GGUF file or a Hugging Face folder"),
    ]:
        with pytest.raises(ModelError, match=message):
            open_checkpoint(path)


def test_a_file_that_vanishes_after_opening_is_one_line(folder: Path) -> None:
    checkpoint = open_checkpoint(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"cannot read model\.norm\.weight from .* changed since it was opened"):
        checkpoint.read("model.norm.weight")
