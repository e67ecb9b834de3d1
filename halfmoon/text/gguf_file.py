"""Tokenizer and chat template from the metadata of a GGUF file.

The end tokens that it names are a part of the checkpoint's generation config.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, decoders
from tokenizers.models import BPE

from halfmoon.errors import ModelError
from halfmoon.text.loaded import LoadedText, blamed_on
from halfmoon.text.pretokenizers import WordRule, word_rule
from halfmoon.text.tokenizer import Tokenizer
from halfmoon.weights.gguf_header import MetadataValue, read_gguf_header

_NAMED_KEYS = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
}


class _TokenType(IntEnum):
    """`tokenizer.ggml.token_type`, the kinds that matter."""

    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4


def load_gguf_text(path: Path) -> LoadedText:
    """Raises ModelError that names the file, and what it lacks or what is not supported."""
    metadata = _Metadata(read_gguf_header(path).metadata)
    with blamed_on(path):
        return _load(metadata)


def _load(metadata: "_Metadata") -> LoadedText:
    model = metadata.text("tokenizer.ggml.model")
    if model != "gpt2":
        raise ModelError(f"tokenizer {model!r} is not supported in GGUF files (supported: 'gpt2', byte-level BPE)")
    rule = word_rule(metadata.text("tokenizer.ggml.pre"))
    tokens = metadata.texts("tokenizer.ggml.tokens")
    named = {name: tokens[number] for name, key in _NAMED_KEYS.items() if (number := metadata.token(key)) is not None}
    return LoadedText(
        tokenizer=Tokenizer(
            _backend(metadata, tokens, rule),
            named_tokens=named,
            add_bos=metadata.flag("tokenizer.ggml.add_bos_token", default=rule.add_bos),
        ),
        chat_source=metadata.optional_text("tokenizer.chat_template"),
        end_token_ids=(),
    )


def _backend(metadata: "_Metadata", tokens: Sequence[str], rule: WordRule) -> tokenizers.Tokenizer:
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise ModelError("the vocabulary (tokenizer.ggml.tokens) has a token twice")
    try:
        backend = tokenizers.Tokenizer(BPE(vocabulary, _merges(metadata), ignore_merges=rule.whole_words))
    except Exception as error:  # the library raises nothing more exact
        raise ModelError(f"vocabulary and merges do not fit each other: {error}") from error
    normalizer = rule.make_normalizer()
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.pre_tokenizer = rule.make_pre_tokenizer()
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens(_added_tokens(metadata, tokens))
    return backend


def _merges(metadata: "_Metadata") -> list[tuple[str, str]]:
    merges: list[tuple[str, str]] = []
    for merge in metadata.texts("tokenizer.ggml.merges"):
        left, _, right = merge.partition(" ")
        merges.append((left, right))
    return merges


def _added_tokens(metadata: "_Metadata", tokens: Sequence[str]) -> list[AddedToken]:
    types = metadata.numbers("tokenizer.ggml.token_type")
    if len(types) != len(tokens):
        raise ModelError(f"{len(types)} token types for {len(tokens)} tokens; the file is damaged")
    special = {_TokenType.CONTROL, _TokenType.UNKNOWN}
    return [
        AddedToken(token, special=kind in special, normalized=False)
        for token, kind in zip(tokens, types, strict=True)
        if token and (kind in special or kind == _TokenType.USER_DEFINED)
    ]


class _Metadata:
    """Typed access to a file's metadata; every error names the key."""

    def __init__(self, values: Mapping[str, MetadataValue]) -> None:
        self._values = values

    def optional_text(self, key: str) -> str | None:
        value = self._values.get(key)
        return value if isinstance(value, str) else None

    def text(self, key: str) -> str:
        value = self.optional_text(key)
        if value is None:
            raise ModelError(f"the metadata has no {key}; convert the model again with a current converter")
        return value

    def texts(self, key: str) -> list[str]:
        return [str(item) for item in self._list(key)]

    def numbers(self, key: str) -> list[int]:
        return [item for item in self._list(key) if isinstance(item, int)]

    def flag(self, key: str, *, default: bool) -> bool:
        return bool(self._values.get(key, default))

    def token(self, key: str) -> int | None:
        """A token's id; None where the key is missing or names no token of the vocabulary."""
        value = self._values.get(key)
        known = isinstance(value, int) and 0 <= value < len(self._list("tokenizer.ggml.tokens"))
        return value if isinstance(value, int) and known else None

    def _list(self, key: str) -> Sequence[MetadataValue]:
        value = self._values.get(key)
        if not isinstance(value, list):
            raise ModelError(f"the metadata has no {key}; convert the model again with a current converter")
        return value
