"""A model's text side, small enough for tests: every byte is a token, and three control tokens follow."""

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from halfmoon.text import ChatTemplate, TextModel, Tokenizer

END = 256
"""The end token."""

VOCAB = 259
FINGERPRINT = "0123456789abcdef" * 2
CONTEXT = 512

_TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message.role }}:{{ message.content }}<|stop|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant:{% endif %}"
)


def byte_ids(text: str) -> list[int]:
    """The ids of a text: its bytes."""
    return list(text.encode())


def tiny_text() -> TextModel:
    """Ids 0 to 255 are bytes; 256 `<|end|>`, 257 `<|start|>`, 258 `<|stop|>`."""
    backend = tokenizers.Tokenizer(models.BPE(vocab=_byte_vocabulary(), merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True) for token in ("<|end|>", "<|start|>", "<|stop|>")])
    named = {"eos_token": "<|end|>"}
    return TextModel(
        tokenizer=Tokenizer(backend, named_tokens=named),
        chat=ChatTemplate(_TEMPLATE, named),
        vocab_size=VOCAB,
        max_model_len=CONTEXT,
        end_token_ids=(END,),
        generation_defaults={},
        fingerprint=FINGERPRINT,
    )


def _byte_vocabulary() -> dict[str, int]:
    """The characters that byte-level BPE writes bytes with, in the order of the bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    characters = {byte: chr(byte) for byte in plain} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    return {characters[byte]: byte for byte in range(256)}
