"""`halfmoon models`."""

from pathlib import Path

import pytest
from huggingface_hub import constants

from cli.main import main
from halfmoon.text import load_text_model
from halfmoon.weights import open_checkpoint


def test_list_says_where_to_get_the_default_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HALFMOON_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "hub/models--org--small/snapshots").mkdir(parents=True)
    (tmp_path / "other.gguf").touch()
    assert main(["models", "list"]) == 0
    first, second, third = capsys.readouterr().out.splitlines()
    assert "SmolLM2-135M-Instruct (the default): not fetched yet: halfmoon models fetch" in first
    assert str(tmp_path / "other.gguf") in second
    assert third == f"org/small (of the hub): at {tmp_path / 'hub/models--org--small'}"


def test_list_names_the_default_models_file(default_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "list"]) == 0
    assert str(default_model) in capsys.readouterr().out


def test_fetch_prints_the_path(default_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "fetch"]) == 0
    assert capsys.readouterr().out == f"{default_model}\n"


def test_describe_says_what_a_model_is(default_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "describe", str(default_model)]) == 0
    out = capsys.readouterr().out
    for fact in ("LlamaForCausalLM", "134,515,008", "8,192", "chat template"):
        assert fact in out


def test_describe_of_what_is_no_model_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "describe", str(tmp_path)]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_export_of_a_gguf_file_is_a_model_of_its_own(default_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "exported"
    assert main(["models", "export", str(default_model), str(folder), "--dtype", "bfloat16"]) == 0
    exported, original = load_text_model(folder), load_text_model(default_model)
    text = "Hello, world! Naïve café, 12345."
    assert exported.tokenizer.encode(text) == original.tokenizer.encode(text)
    messages = [{"role": "user", "content": "Hi"}]
    assert exported.chat is not None
    assert original.chat is not None
    assert exported.chat.render(messages) == original.chat.render(messages)
    assert set(open_checkpoint(folder).names()) == set(open_checkpoint(default_model).names())
    assert exported.end_token_ids == original.end_token_ids
