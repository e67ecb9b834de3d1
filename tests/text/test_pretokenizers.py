"""Word rules against the words that the models' own tokenizers make (`data/words.json`)."""

import json
from pathlib import Path
from typing import TypedDict

import pytest

from halfmoon.errors import ModelError
from halfmoon.text.pretokenizers import word_rule


class Rule(TypedDict):
    """What one model's tokenizer makes of the texts."""

    tokenizer: str
    words: list[list[str]]


class Reference(TypedDict):
    """The file: texts, and the words of each by rule."""

    texts: list[str]
    rules: dict[str, Rule]


REFERENCE: Reference = json.loads((Path(__file__).parent / "data/words.json").read_text())


def words(rule: str, text: str) -> list[str]:
    splits = word_rule(rule).make_pre_tokenizer().pre_tokenize_str(text)
    return [text[start:end] for _, (start, end) in splits]


@pytest.mark.parametrize("rule", REFERENCE["rules"])
def test_words_are_those_of_the_model_s_own_tokenizer(rule: str) -> None:
    assert [words(rule, text) for text in REFERENCE["texts"]] == REFERENCE["rules"][rule]["words"]


def test_rules_differ_in_what_they_keep_together() -> None:
    assert words("gpt-2", "it's 2024") == ["it", "'s", " 2024"]
    assert words("smollm", "it's 2024") == ["it", "'s", " ", "2", "0", "2", "4"]
    assert words("gpt-4o", "it's 2024 aB") == ["it's", " ", "202", "4", " a", "B"]


def test_an_unknown_rule_is_named() -> None:
    with pytest.raises(ModelError, match=r"'bloom'.*not supported.*smollm"):
        word_rule("bloom")
