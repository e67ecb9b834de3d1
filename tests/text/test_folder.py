"""Tokenizers and chat templates from Hugging Face folders."""

import json
from pathlib import Path

import pytest

from halfmoon.errors import ModelError
from halfmoon.text.folder import load_folder_text
from tests.text.tokenizers_made import byte_level, write_folder

BOS = {"content": "<|bos|>", "lstrip": False}


def test_a_tokenizer_alone_is_enough(tmp_path: Path) -> None:
    loaded = load_folder_text(write_folder(tmp_path, byte_level()))
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("hello")) == "hello"
    assert (loaded.chat_source, loaded.end_token_ids) == (None, ())


def test_tokens_are_named_as_strings_or_objects(tmp_path: Path) -> None:
    loaded = load_folder_text(write_folder(tmp_path, byte_level(), {"bos_token": BOS, "eos_token": "<|im_end|>"}))
    assert loaded.tokenizer.named_tokens == {"bos_token": "<|bos|>", "eos_token": "<|im_end|>"}
    assert loaded.end_token_ids == (2,)


def test_the_special_tokens_map_fills_what_the_configuration_leaves_out(tmp_path: Path) -> None:
    write_folder(tmp_path, byte_level(), {"bos_token": None, "eos_token": "<|im_end|>"})
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"bos_token": BOS, "eos_token": "<|im_start|>"}))
    named = load_folder_text(tmp_path).tokenizer.named_tokens
    assert named == {"bos_token": "<|bos|>", "eos_token": "<|im_end|>"}


def test_a_token_that_only_the_configuration_calls_special_is_special(tmp_path: Path) -> None:
    config: dict[str, object] = {"eos_token": "a", "additional_special_tokens": ["b", {"content": "not in vocabulary"}]}
    tokenizer = load_folder_text(write_folder(tmp_path, byte_level(), config)).tokenizer
    ids = tokenizer.encode("abc")
    assert tokenizer.decode(ids) == "c"
    assert tokenizer.vocab_size == 300


@pytest.mark.parametrize(("add_bos", "expected"), [(True, True), (False, False), (None, False)])
def test_the_configuration_says_whether_bos_is_added(tmp_path: Path, add_bos: bool | None, expected: bool) -> None:
    config: dict[str, object] = {"bos_token": "<|bos|>", "add_bos_token": add_bos}
    tokenizer = load_folder_text(write_folder(tmp_path, byte_level(), config)).tokenizer
    assert (tokenizer.encode("hello")[0] == 0) is expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("one", "one"),
        ([{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}], "D"),
        ([{"name": "only", "template": "O"}], "O"),
        ([], None),
        (None, None),
    ],
)
def test_the_template_is_one_or_the_default_of_several(tmp_path: Path, template: object, expected: str | None) -> None:
    assert load_folder_text(write_folder(tmp_path, byte_level(), {"chat_template": template})).chat_source == expected


def test_the_template_s_own_file_wins(tmp_path: Path) -> None:
    write_folder(tmp_path, byte_level(), {"chat_template": "old"})
    (tmp_path / "chat_template.jinja").write_text("new é", encoding="utf-8")
    assert load_folder_text(tmp_path).chat_source == "new é"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", "{", "not a valid tokenizer"),
        ("tokenizer.json", '{"version": "1.0"}', "not a valid tokenizer"),
        ("tokenizer_config.json", "{", "not valid JSON"),
        ("tokenizer_config.json", "[]", "no JSON object"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: str, message: str) -> None:
    write_folder(tmp_path, byte_level())
    (tmp_path / name).write_text(content)
    with pytest.raises(ModelError, match=rf"{name}.*{message}") as caught:
        load_folder_text(tmp_path)
    assert "\n" not in caught.value.message


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"tokenizer\.json: missing"):
        load_folder_text(tmp_path)


def test_an_unsupported_decoder_is_named_with_its_file(tmp_path: Path) -> None:
    backend = byte_level()
    content = json.loads(backend.to_str()) | {"decoder": None}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ModelError, match=r"tokenizer\.json.*no decoder"):
        load_folder_text(tmp_path)
