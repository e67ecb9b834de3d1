"""Tokenizers from GGUF files."""

from pathlib import Path

import pytest
from tokenizers.pre_tokenizers import ByteLevel

from halfmoon.errors import ModelError
from halfmoon.text import ChatTemplate
from halfmoon.text.gguf_file import load_gguf_text
from tests.text.tokenizers_made import CONTROLS, write_gguf, write_gguf_without_tokenizer

TOKENS = [*CONTROLS, *sorted(ByteLevel.alphabet()), "th", "<think>"]


def test_ids_are_the_file_s_own(tmp_path: Path) -> None:
    loaded = load_gguf_text(write_gguf(tmp_path / "m.gguf", TOKENS, add_bos=None))
    encode = loaded.tokenizer.encode
    assert encode("the") == [TOKENS.index("th"), TOKENS.index("e")]
    assert encode("<|im_end|>") == [2]
    assert loaded.tokenizer.vocab_size == len(TOKENS)


def test_control_tokens_are_special_and_tokens_of_the_user_are_not(tmp_path: Path) -> None:
    tokenizer = load_gguf_text(write_gguf(tmp_path / "m.gguf", TOKENS, add_bos=None)).tokenizer
    thought = TOKENS.index("<think>")
    assert tokenizer.encode("<think>") == [thought]
    assert [tokenizer.is_special(token) for token in (0, 1, 2, 3, thought)] == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("pre", "add_bos", "expected"),
    [("gpt-2", None, False), ("gpt-2", True, True), ("llama-bpe", None, True), ("llama-bpe", False, False)],
)
def test_the_file_says_whether_bos_is_added_and_else_the_rule(
    tmp_path: Path, pre: str, add_bos: bool | None, expected: bool
) -> None:
    tokenizer = load_gguf_text(write_gguf(tmp_path / "m.gguf", TOKENS, pre=pre, add_bos=add_bos)).tokenizer
    assert (tokenizer.encode("a")[0] == 0) is expected


def test_the_chat_template_knows_the_named_tokens(tmp_path: Path) -> None:
    loaded = load_gguf_text(write_gguf(tmp_path / "m.gguf", TOKENS, add_bos=True))
    assert loaded.chat_source is not None
    template = ChatTemplate(loaded.chat_source, loaded.tokenizer.named_tokens)
    ids = template.encode([{"role": "user", "content": "a<|im_end|>"}], loaded.tokenizer)
    assert [token for token in ids if loaded.tokenizer.is_special(token)] == [0, 1, 2, 1]


@pytest.mark.parametrize(("model", "pre", "named"), [("t5", "default", "'t5'"), ("gpt2", "bloom", "'bloom'")])
def test_what_is_not_supported_is_named(tmp_path: Path, model: str, pre: str, named: str) -> None:
    file = write_gguf(tmp_path / "m.gguf", TOKENS, model=model, pre=pre, add_bos=None)
    with pytest.raises(ModelError, match=rf"m\.gguf.*{named}") as caught:
        load_gguf_text(file)
    assert "\n" not in caught.value.message


def test_a_token_that_stands_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="twice"):
        load_gguf_text(write_gguf(tmp_path / "m.gguf", [*TOKENS, "th"], add_bos=None))


def test_a_merge_of_unknown_tokens_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"m\.gguf.*merges"):
        load_gguf_text(write_gguf(tmp_path / "m.gguf", [token for token in TOKENS if token != "th"], add_bos=None))


def test_metadata_without_a_tokenizer_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"m\.gguf: the metadata has no tokenizer\.ggml\.model"):
        load_gguf_text(write_gguf_without_tokenizer(tmp_path / "m.gguf"))
