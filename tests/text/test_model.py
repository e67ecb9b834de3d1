"""The bundle of everything about a model's text."""

import json
from pathlib import Path

import pytest

from halfmoon.errors import ModelError
from halfmoon.text import load_text_model
from halfmoon.weights import open_checkpoint
from tests.models.families import CONTEXT, VOCABULARY, write_checkpoint
from tests.text.tokenizers_made import CHAT, byte_level, write_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small model with a tokenizer and a chat template."""
    write_checkpoint("llama", tmp_path)
    config: dict[str, object] = {"bos_token": "<|bos|>", "eos_token": "<|im_end|>", "chat_template": CHAT}
    return write_folder(tmp_path, byte_level(), config)


def change(path: Path, **values: object) -> None:
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(content | values))


def test_a_folder_is_loaded_whole(folder: Path) -> None:
    model = load_text_model(folder)
    assert (model.vocab_size, model.max_model_len) == (VOCABULARY, CONTEXT)
    assert model.fingerprint == open_checkpoint(folder).fingerprint
    assert model.chat is not None
    assert model.chat.encode([{"role": "user", "content": "a"}], model.tokenizer)[0] == 0


@pytest.mark.parametrize(
    ("config", "generation", "expected"),
    [(5, None, {5, 2}), ([5, 6], 7, {5, 6, 7, 2}), (None, [7, 8], {7, 8, 2}), (2, [2], {2})],
)
def test_end_tokens_are_those_of_all_files(
    folder: Path, config: object, generation: object, expected: set[int]
) -> None:
    change(folder / "config.json", eos_token_id=config)
    change(folder / "generation_config.json", eos_token_id=generation)
    ends = load_text_model(folder).end_token_ids
    assert set(ends) == expected
    assert len(ends) == len(expected)


def test_recommended_sampling_is_read(folder: Path) -> None:
    change(folder / "generation_config.json", temperature=0.6, top_k=20, do_sample=True, pad_token_id=3, top_p=None)
    assert load_text_model(folder).generation_defaults == {"temperature": 0.6, "top_k": 20.0}


def test_a_model_without_a_template_has_no_chat(folder: Path) -> None:
    change(folder / "tokenizer_config.json", chat_template=None)
    assert load_text_model(folder).chat is None


def test_a_broken_template_is_named_with_the_model(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{% if %}")
    with pytest.raises(ModelError, match=f"{folder.name}.*chat template"):
        load_text_model(folder)


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nowhere"):
        load_text_model(tmp_path / "nowhere")
