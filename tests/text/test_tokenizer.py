"""Text to ids and back."""

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import processors

from halfmoon.errors import InvalidRequestError, ModelError
from halfmoon.text import Tokenizer
from tests.text.tokenizers_made import byte_level, sentencepiece

BYTES = Tokenizer(byte_level(), named_tokens={"bos_token": "<|bos|>", "eos_token": "<|im_end|>"}, add_bos=True)
PIECES = Tokenizer(sentencepiece(), named_tokens={"bos_token": "<s>", "eos_token": "</s>"}, add_bos=True)
MADE = {"bytes": (BYTES, byte_level()), "pieces": (PIECES, sentencepiece())}


@pytest.mark.parametrize("tokenizer", [BYTES, PIECES], ids=["bytes", "pieces"])
@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
def test_decoding_undoes_encoding(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text.replace("▁", " " if tokenizer is PIECES else "▁")


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("text", ["hello there", "  two  spaces ", "中国 🙂", "a\nb", " <|im_end|> "])
def test_decoding_agrees_with_the_library(kind: str, text: str) -> None:
    tokenizer, library = MADE[kind]
    ids = library.encode(text, add_special_tokens=False).ids
    assert tokenizer.encode(text, add_special=False) == ids
    for skip in (True, False):
        assert tokenizer.decode(ids, skip_special=skip) == library.decode(ids, skip_special_tokens=skip)


def test_a_prompt_begins_with_one_bos_whether_written_or_not() -> None:
    bos = BYTES.token_id("<|bos|>")
    assert BYTES.encode("hello")[0] == bos
    assert BYTES.encode("<|bos|>hello") == BYTES.encode("hello")
    assert BYTES.encode("hello", add_special=False) == BYTES.encode("hello")[1:]


def with_template(single: str, ids: dict[str, int]) -> tokenizers.Tokenizer:
    backend = byte_level()
    backend.post_processor = processors.TemplateProcessing(single=single, special_tokens=list(ids.items()))
    return backend


def test_the_post_processor_says_what_stands_before_a_prompt_and_nothing_follows_it() -> None:
    backend = with_template("<|bos|> $A <|im_end|>", {"<|bos|>": 0, "<|im_end|>": 2})
    tokenizer = Tokenizer(backend, named_tokens={"bos_token": "<|bos|>", "eos_token": "<|im_end|>"})
    assert tokenizer.encode("hello") == [0, *tokenizer.encode("hello", add_special=False)]
    assert tokenizer.encode("<|bos|>hello") == tokenizer.encode("hello")


def test_the_configuration_overrules_the_post_processor() -> None:
    backend = with_template("<|bos|> $A", {"<|bos|>": 0})
    tokenizer = Tokenizer(backend, named_tokens={"bos_token": "<|bos|>"}, add_bos=False)
    assert tokenizer.encode("hello") == tokenizer.encode("hello", add_special=False)


def test_control_tokens_in_a_raw_prompt_are_recognised() -> None:
    assert BYTES.encode("<|im_start|>", add_special=False) == [BYTES.token_id("<|im_start|>")]


def test_settings_for_training_batches_do_not_cut_or_fill_prompts() -> None:
    backend = byte_level()
    backend.enable_truncation(4)
    backend.enable_padding(length=64)
    tokenizer = Tokenizer(backend, named_tokens={})
    text = "hello world " * 20
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_bytes_of_a_token_are_those_of_its_text_and_none_outside_the_vocabulary() -> None:
    ids = BYTES.encode("é🙂", add_special=False)
    assert b"".join(BYTES.token_bytes(token) for token in ids) == "é🙂".encode()
    assert BYTES.token_bytes(BYTES.vocab_size) == BYTES.token_bytes(-1) == b""
    assert BYTES.decode([BYTES.vocab_size + 7]) == ""


def test_bytes_that_are_no_text_become_replacement_characters() -> None:
    first, *_ = BYTES.encode("é", add_special=False)
    lead = next(token for token in range(BYTES.vocab_size) if BYTES.token_bytes(token) == b"\xc3")
    assert BYTES.token_bytes(first) == "é".encode()
    assert BYTES.decode([lead]) == "\ufffd"


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="surrogate"):
        BYTES.encode("a\ud800")


def test_special_tokens_are_told_apart() -> None:
    assert BYTES.is_special(0)
    assert not BYTES.is_special(50)


def test_a_decoder_of_an_unknown_kind_is_named() -> None:
    backend = byte_level()
    backend.decoder = tokenizers.decoders.CTC()
    with pytest.raises(ModelError, match="CTC"):
        Tokenizer(backend, named_tokens={})


@pytest.mark.parametrize("scheme", ["always", "first", "never"])
def test_metaspace_keeps_leading_spaces_but_the_one_that_encoding_added(scheme: str) -> None:
    backend = sentencepiece()
    backend.normalizer = tokenizers.normalizers.Sequence([])
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    backend.decoder = tokenizers.decoders.Sequence(
        [tokenizers.decoders.ByteFallback(), tokenizers.decoders.Metaspace(prepend_scheme=scheme)]
    )
    tokenizer = Tokenizer(backend, named_tokens={})
    for text in ("hello world", " hello", "🙂 cat"):
        assert tokenizer.decode(tokenizer.encode(text)).lstrip() == text.lstrip()
    assert tokenizer.decode(tokenizer.encode("hello world")) == "hello world"
