"""Byte-level BPE (`tokenizer.ggml.model = gpt2`) from the metadata of a GGUF file."""

import tokenizers
from tokenizers import decoders
from tokenizers.models import BPE

from halfmoon.errors import ModelError
from halfmoon.text.gguf_metadata import TokenizerMetadata, TokenType, added_token
from halfmoon.text.pretokenizers import word_rule


def byte_level_backend(metadata: TokenizerMetadata) -> tuple[tokenizers.Tokenizer, bool]:
    """The tokenizer, and whether its kind of model wants a beginning-of-sequence token. Raises ModelError."""
    rule = word_rule(metadata.text("tokenizer.ggml.pre"))
    vocabulary = metadata.vocabulary()
    try:
        backend = tokenizers.Tokenizer(BPE(vocabulary, _merges(metadata), ignore_merges=rule.whole_words))
    except Exception as error:  # the library raises nothing more exact
        raise ModelError(f"vocabulary and merges do not fit each other: {error}") from error
    normalizer = rule.make_normalizer()
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.pre_tokenizer = rule.make_pre_tokenizer()
    backend.decoder = decoders.ByteLevel()
    found_as_written = {*TokenType.special(), TokenType.USER_DEFINED}
    typed = zip(vocabulary, metadata.types(), strict=True)
    backend.add_tokens([added_token(token, kind) for token, kind in typed if token and kind in found_as_written])
    return backend, rule.add_bos


def _merges(metadata: TokenizerMetadata) -> list[tuple[str, str]]:
    merges: list[tuple[str, str]] = []
    for merge in metadata.texts("tokenizer.ggml.merges"):
        left, _, right = merge.partition(" ")
        merges.append((left, right))
    return merges
