"""SentencePiece vocabularies from GGUF files, against what SentencePiece makes of the same texts."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.errors import ModelError
from halfmoon.text import ChatTemplate, IncrementalDetokenizer, Tokenizer
from halfmoon.text.folder import load_folder_text
from halfmoon.text.gguf_file import load_gguf_text
from halfmoon.text.gguf_sentencepiece import merges_by_score
from halfmoon.text.saving import save_gguf_text
from tests.text.tokenizers_made import write_sentencepiece_gguf

Piece = tuple[str, float, int]

CONTENT = json.loads((Path(__file__).parent / "data/sentencepiece.json").read_text())
PIECES: list[Piece] = [(piece, score, kind) for piece, score, kind in CONTENT["pieces"]]
CASES: list[tuple[str, list[int]]] = CONTENT["cases"]
CONTROL, USER, BYTE = 3, 4, 6
CONTROLS = [piece for piece, _, kind in PIECES if kind == CONTROL]
TINY: list[Piece] = [
    ("<unk>", 0.0, 2),
    ("<s>", 0.0, CONTROL),
    ("</s>", 0.0, CONTROL),
    *((f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)),
    *((piece, -float(rank), 1) for rank, piece in enumerate(("</", "s>", "ab", "</s", "▁a"))),
    *((character, -1000.0, 1) for character in "</s>▁ab0xA"),
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load(tmp_path_factory.mktemp("gguf"), PIECES)


def load(folder: Path, pieces: list[Piece], *, add_space_prefix: bool | None = None) -> Tokenizer:
    file = write_sentencepiece_gguf(folder / "m.gguf", pieces, add_space_prefix=add_space_prefix)
    return load_gguf_text(file).tokenizer


def test_all_texts_become_the_ids_of_sentencepiece(tokenizer: Tokenizer) -> None:
    plain = [(text, ids) for text, ids in CASES if not any(token in text for token in CONTROLS)]
    assert len(plain) > 200
    for text, ids in plain:
        assert tokenizer.encode(text, add_special=False) == ids


def test_control_tokens_in_a_message_become_the_ids_that_sentencepiece_gives_to_their_text(
    tokenizer: Tokenizer,
) -> None:
    template = ChatTemplate("{{ messages[0].content }}", {})
    written = [(text, ids) for text, ids in CASES if "</s>" in text]
    assert len(written) > 20
    for text, ids in written:
        assert template.encode([{"role": "user", "content": text}], tokenizer) == ids


def test_decoding_undoes_encoding_but_for_written_spaces(tokenizer: Tokenizer) -> None:
    for text, ids in CASES:
        assert tokenizer.decode(ids) == text.replace("▁", " ")
        detokenizer = IncrementalDetokenizer(tokenizer)
        assert "".join(detokenizer.push([token]) for token in ids) + detokenizer.flush() == text.replace("▁", " ")


@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="▁"), max_size=40))
def test_any_text_survives_through_bytes(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_prompts_begin_with_one_bos(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("a")[0] == 1
    assert tokenizer.encode("<s>a") == tokenizer.encode("a")


def test_control_tokens_written_by_the_template_act_and_are_special(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("[INST] you [/INST]", add_special=False)
    assert [token for token in ids if tokenizer.is_special(token)] == [3, 4]
    assert tokenizer.decode(ids).strip() == "you"


def test_joining_text_never_makes_a_control_token_or_a_byte(tmp_path: Path) -> None:
    tokenizer = load(tmp_path, TINY)
    template = ChatTemplate("{{ messages[0].content }}", {})
    ids = template.encode([{"role": "user", "content": "</s>"}], tokenizer)
    assert [TINY[token][0] for token in ids] == ["▁", "</", "s>"]
    assert 0x0A + 3 not in tokenizer.encode("<0x0A>", add_special=False)


@pytest.mark.parametrize(("prefix", "expected"), [(None, ["▁a", "b"]), (True, ["▁a", "b"]), (False, ["ab"])])
def test_the_file_says_whether_a_space_is_put_before_text(
    tmp_path: Path, prefix: bool | None, expected: list[str]
) -> None:
    pieces = [piece for piece in TINY if piece[0] != "ab"] if prefix is not False else TINY
    tokenizer = load(tmp_path, pieces, add_space_prefix=prefix)
    ids = tokenizer.encode("ab", add_special=False)
    assert [tokenizer.token_bytes(token).decode().replace(" ", "▁") for token in ids] == expected
    assert tokenizer.decode(ids) == "ab"
    assert tokenizer.decode(tokenizer.encode(" ab")) == " ab"


def test_tokens_of_the_user_are_found_as_written_and_are_not_special(tmp_path: Path) -> None:
    tokenizer = load(tmp_path, [*TINY, ("<think>", 0.0, USER), ("▁▁", -0.5, USER)])
    thought = len(TINY)
    assert tokenizer.encode("<think>", add_special=False) == [thought]
    assert not tokenizer.is_special(thought)
    assert thought + 1 in tokenizer.encode("a  b")


def test_merges_of_equal_score_take_the_longest_left_part_first() -> None:
    scores = {"a": -9.0, "aa": -1.0, "aaa": -2.0}
    assert merges_by_score(scores) == [("a", "a"), ("aa", "a"), ("a", "aa")]


def test_an_export_encodes_as_the_file_does(tmp_path: Path, tokenizer: Tokenizer) -> None:
    save_gguf_text(write_sentencepiece_gguf(tmp_path / "m.gguf", PIECES), tmp_path)
    exported = load_folder_text(tmp_path).tokenizer
    for text, _ in CASES[:60]:
        assert exported.encode(text) == tokenizer.encode(text)


def test_scores_that_do_not_fit_the_vocabulary_are_refused(tmp_path: Path) -> None:
    file = write_sentencepiece_gguf(tmp_path / "m.gguf", TINY, scores=5)
    with pytest.raises(ModelError, match=r"m\.gguf: 5 token scores for 274 tokens; the file is damaged"):
        load_gguf_text(file)
