"""What the fingerprint of a checkpoint depends on, and what it does not."""

import json
import re
import shutil
from pathlib import Path

import pytest

from halfmoon.weights import open_checkpoint
from tests.models.families import write_checkpoint, write_gguf


def of(path: Path) -> str:
    return open_checkpoint(path).fingerprint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint("llama", tmp_path / "model")


def test_it_is_32_hex_digits_for_both_kinds(folder: Path, tmp_path: Path) -> None:
    for path in (folder, write_gguf("llama", tmp_path / "model.gguf")):
        assert re.fullmatch("[0-9a-f]{32}", of(path))


def test_a_copy_in_another_place_has_the_same(folder: Path, tmp_path: Path) -> None:
    gguf = write_gguf("llama", tmp_path / "model.gguf")
    assert of(Path(shutil.copytree(folder, tmp_path / "copy"))) == of(folder)
    assert of(Path(shutil.copy(gguf, tmp_path / "copy.gguf"))) == of(gguf)


@pytest.mark.parametrize("position", [-1, -100])
def test_other_weights_have_another(folder: Path, position: int) -> None:
    before, path = of(folder), folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    assert of(folder) != before


def test_another_config_has_another(folder: Path) -> None:
    before, path = of(folder), folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rope_theta": 10_000.0}))
    assert of(folder) != before


def test_it_does_not_depend_on_the_layout_of_the_config_file(folder: Path) -> None:
    before, path = of(folder), folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()), sort_keys=True))
    assert of(folder) == before


def test_only_the_ends_of_a_file_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfmoon.weights.fingerprint.SAMPLE_BYTES", 4096)
    before, path = of(folder), folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert of(folder) == before
