"""Exports are equal to what was exported, and appear whole or not at all."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize
from safetensors.numpy import load_file, save_file

from halfmoon.errors import ModelError
from halfmoon.weights import StoredCheckpoint, export_safetensors, open_checkpoint
from tests.models.families import FAMILIES, make_weights, write_checkpoint, write_gguf
from tests.weights.gguf_building import HIDDEN, VOCABULARY, build_gguf
from tests.weights.recorder import Recorder


def assert_same_tensors(left: StoredCheckpoint, right: StoredCheckpoint) -> None:
    assert sorted(left.names()) == sorted(right.names())
    for name in left.names():
        assert left.read(name).dtype == right.read(name).dtype
        np.testing.assert_array_equal(left.read(name), right.read(name))


@pytest.mark.parametrize("family", FAMILIES)
def test_an_exported_gguf_opens_with_equal_tensors_and_config(family: str, tmp_path: Path) -> None:
    source = open_checkpoint(write_gguf(family, tmp_path / "model.gguf"))
    export_safetensors(source, tmp_path / "out")
    exported = open_checkpoint(tmp_path / "out")
    assert_same_tensors(source, exported)
    assert exported.config == {**source.config, "torch_dtype": "float32"}
    assert exported.generation_config == source.generation_config


def test_the_library_reads_what_was_written(tmp_path: Path) -> None:
    export_safetensors(open_checkpoint(write_checkpoint("llama", tmp_path / "model")), tmp_path / "out")
    written = load_file(tmp_path / "out" / "model.safetensors")
    for name, expected in make_weights("llama").items():
        np.testing.assert_array_equal(written[name], expected)


def test_quantised_tensors_become_float32(tmp_path: Path) -> None:
    values = np.random.RandomState(3).standard_normal((VOCABULARY, HIDDEN)).astype(np.float32)
    stored = quantize(values, GGMLQuantizationType.Q4_1)
    tensors = {"token_embd.weight": (stored, GGMLQuantizationType.Q4_1)}
    source = open_checkpoint(build_gguf(tmp_path / "model.gguf", tensors=tensors))
    export_safetensors(source, tmp_path / "out")
    assert_same_tensors(source, open_checkpoint(tmp_path / "out"))


def test_a_large_model_is_split_into_shards_with_an_index(tmp_path: Path) -> None:
    source = open_checkpoint(write_gguf("llama", tmp_path / "model.gguf"))
    export_safetensors(source, tmp_path / "out", shard_bytes=100_000)
    exported = open_checkpoint(tmp_path / "out")
    assert len(exported.files) > 2
    assert all(path.stat().st_size < 110_000 for path in exported.files)
    assert exported.files[0].name == f"model-00001-of-{len(exported.files):05}.safetensors"
    assert_same_tensors(source, exported)


@pytest.mark.parametrize(("dtype", "expected"), [("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)])
def test_another_type_can_be_chosen(tmp_path: Path, dtype: str, expected: type) -> None:
    source = open_checkpoint(write_checkpoint("qwen3", tmp_path / "model"))
    export_safetensors(source, tmp_path / "out", dtype="float16" if dtype == "float16" else "bfloat16")
    exported = open_checkpoint(tmp_path / "out")
    assert exported.config["torch_dtype"] == dtype
    for name, tensor in make_weights("qwen3").items():
        assert exported.read(name).dtype == expected
        np.testing.assert_array_equal(exported.read(name), tensor.astype(expected))


def test_a_value_beyond_float16_is_refused(tmp_path: Path) -> None:
    folder = write_checkpoint("llama", tmp_path / "model")
    weights = make_weights("llama")
    weights["model.norm.weight"][3] = 1e6
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(
        ModelError, match=r"model\.norm\.weight has values beyond the range of float16: export as bfloat16"
    ):
        export_safetensors(open_checkpoint(folder), tmp_path / "out", dtype="float16")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


def test_tokenizer_files_of_a_folder_come_along_and_others_do_not(tmp_path: Path) -> None:
    folder = write_checkpoint("llama", tmp_path / "model")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "training_args.bin").write_bytes(b"secret")
    export_safetensors(open_checkpoint(folder), tmp_path / "out")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["chat_template.jinja", "config.json", "model.safetensors", "tokenizer.json"]


def test_files_can_be_added_before_the_folder_appears(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def add(folder: Path) -> None:
        assert not out.exists()
        (folder / "tokenizer.json").write_text("{}")

    export_safetensors(open_checkpoint(write_gguf("llama", tmp_path / "model.gguf")), out, add_files=add)
    assert (out / "tokenizer.json").exists()


def test_a_failure_on_the_way_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    source = open_checkpoint(write_gguf("llama", tmp_path / "model.gguf"))
    with pytest.raises(ModelError, match=r"cannot write .*out \(No space left on device\)"):
        export_safetensors(source, tmp_path / "out", add_files=fail)
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]


def test_a_folder_with_content_is_not_overwritten(tmp_path: Path) -> None:
    source = open_checkpoint(write_checkpoint("llama", tmp_path / "model"))
    with pytest.raises(ModelError, match="exists and is not empty: name a new folder"):
        export_safetensors(source, tmp_path / "model")


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    export_safetensors(open_checkpoint(write_gguf("llama", tmp_path / "model.gguf")), tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["model_type"] == "llama"


def test_a_full_disk_is_told_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_checkpoint(write_gguf("llama", tmp_path / "model.gguf"))
    monkeypatch.setattr("halfmoon.weights.export.shutil.disk_usage", lambda path: type("Usage", (), {"free": 10}))
    with pytest.raises(ModelError, match="has 0 MB free, the export needs"):
        export_safetensors(source, tmp_path / "out")


def test_progress_runs_from_nothing_to_all_bytes(tmp_path: Path) -> None:
    progress = Recorder()
    export_safetensors(
        open_checkpoint(write_gguf("llama", tmp_path / "model.gguf")), tmp_path / "out", progress=progress
    )
    total = sum(tensor.nbytes for tensor in make_weights("llama").values())
    done = [done for _, done, _ in progress.calls]
    assert done[0] == 0
    assert done == sorted(done)
    assert progress.calls[-1] == ("Exporting model.gguf", total, total)
