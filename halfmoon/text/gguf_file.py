"""Tokenizer and chat template from the metadata of a GGUF file.

The end tokens that it names are a part of the checkpoint's generation config.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import tokenizers

from halfmoon.errors import ModelError
from halfmoon.text.gguf_byte_level import byte_level_backend
from halfmoon.text.gguf_metadata import TokenizerMetadata
from halfmoon.text.gguf_sentencepiece import sentencepiece_backend
from halfmoon.text.loaded import LoadedText, blamed_on
from halfmoon.text.tokenizer import Tokenizer
from halfmoon.weights.gguf_header import read_gguf_header

_NAMED_KEYS = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
}

Backend = Callable[[TokenizerMetadata], tuple[tokenizers.Tokenizer, bool]]
"""The tokenizer, and whether raw prompts begin with a beginning-of-sequence token unless the file says otherwise."""

_BACKENDS: Mapping[str, Backend] = {"gpt2": byte_level_backend, "llama": sentencepiece_backend}


def load_gguf_text(path: Path) -> LoadedText:
    """Raises ModelError that names the file, and what it lacks or what is not supported."""
    metadata = TokenizerMetadata(read_gguf_header(path).metadata)
    with blamed_on(path):
        return _load(metadata)


def _load(metadata: TokenizerMetadata) -> LoadedText:
    model = metadata.text("tokenizer.ggml.model")
    if model not in _BACKENDS:
        raise ModelError(
            f"tokenizer {model!r} is not supported in GGUF files "
            "(supported: 'gpt2', byte-level BPE, and 'llama', SentencePiece BPE)"
        )
    backend, adds_bos = _BACKENDS[model](metadata)
    tokens = metadata.texts("tokenizer.ggml.tokens")
    named = {name: tokens[number] for name, key in _NAMED_KEYS.items() if (number := metadata.token(key)) is not None}
    return LoadedText(
        tokenizer=Tokenizer(
            backend,
            named_tokens=named,
            add_bos=metadata.flag("tokenizer.ggml.add_bos_token", default=adds_bos),
        ),
        chat_source=metadata.optional_text("tokenizer.chat_template"),
        end_token_ids=(),
    )
