"""Text token by token."""

from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.text import IncrementalDetokenizer, Tokenizer
from tests.text.tokenizers_made import byte_level, sentencepiece

BYTES = Tokenizer(byte_level(), named_tokens={})
PIECES = Tokenizer(sentencepiece(), named_tokens={})
BOTH = pytest.mark.parametrize("tokenizer", [BYTES, PIECES], ids=["bytes", "pieces"])
IDS = st.lists(st.integers(0, 310), max_size=30)
TEXTS = [
    "🙂🙃 I feel",
    "中国的首都是北京",
    "e\u0301 n\u0303 क्षि",
    "👨‍👩‍👧‍👦 🇩🇪",
    "  leading",
    "\n\ttab",
    "naïve – “x”",
    "",
]


def stream(detokenizer: IncrementalDetokenizer, chunks: list[list[int]]) -> list[str]:
    return [*(detokenizer.push(chunk) for chunk in chunks), detokenizer.flush()]


@BOTH
@given(chunks=st.lists(IDS, max_size=8), skip=st.booleans())
def test_pieces_joined_equal_the_whole_for_any_tokens_and_chunks(
    tokenizer: Tokenizer, chunks: list[list[int]], skip: bool
) -> None:
    pieces = stream(IncrementalDetokenizer(tokenizer, skip_special=skip), chunks)
    assert "".join(pieces) == tokenizer.decode([token for chunk in chunks for token in chunk], skip_special=skip)


@BOTH
@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd▁"), max_size=30))
def test_no_piece_of_valid_text_has_a_replacement_character(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    pieces = stream(IncrementalDetokenizer(tokenizer), [[token] for token in ids])
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


@BOTH
@pytest.mark.parametrize("text", TEXTS)
def test_a_character_comes_whole_and_as_soon_as_it_can(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    detokenizer = IncrementalDetokenizer(tokenizer)
    sent = ""
    for count, token in enumerate(ids, start=1):
        sent += detokenizer.push([token])
        # All but the bytes of a last, incomplete character have been sent.
        assert sent == tokenizer.decode(ids[:count]).rstrip("\ufffd")
    assert detokenizer.flush() == ""
    assert sent == text


def test_an_incomplete_character_is_held_until_the_flush() -> None:
    ids = PIECES.encode("🙂")
    detokenizer = IncrementalDetokenizer(PIECES)
    assert detokenizer.push(ids[:-1]) == ""
    assert detokenizer.flush() == "\ufffd"


def test_a_replacement_character_that_the_model_wrote_is_sent_at_once() -> None:
    detokenizer = IncrementalDetokenizer(BYTES)
    assert detokenizer.push(BYTES.encode("\ufffd")) == "\ufffd"


@given(prompt=st.text(alphabet="ab 🙂é", min_size=1), output=st.text(alphabet="ab 🙂é", min_size=1), data=st.data())
def test_a_character_that_the_prompt_left_incomplete_is_completed(
    prompt: str, output: str, data: st.DataObject
) -> None:
    ids = PIECES.encode(prompt + output)
    cut = data.draw(st.integers(1, len(ids)))
    before = PIECES.decode(ids[:cut]).rstrip("\ufffd")
    pieces = stream(IncrementalDetokenizer(PIECES, ids[:cut]), [[token] for token in ids[cut:]])
    assert before + "".join(pieces) == prompt + output


def test_a_leading_space_is_kept_after_a_prompt_and_only_there() -> None:
    ids = PIECES.encode("cat")
    assert IncrementalDetokenizer(PIECES, PIECES.encode("the")).push(ids) == " cat"
    assert IncrementalDetokenizer(PIECES).push(ids) == "cat"


def test_special_tokens_leave_no_text_and_do_not_break_a_character() -> None:
    first, second = (next(t for t in range(300) if BYTES.token_bytes(t) == byte) for byte in (b"\xc3", b"\xa8"))
    assert IncrementalDetokenizer(BYTES).push([0, first, 1, second, 2]) == "è"


def test_the_work_for_a_token_does_not_grow() -> None:
    ids = PIECES.encode("🙂") * 20_000
    detokenizer = IncrementalDetokenizer(PIECES)
    started = perf_counter()
    for token in ids:
        detokenizer.push([token])
    assert perf_counter() - started < 3.0
