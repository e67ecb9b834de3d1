"""What each token of a vocabulary contributes to text, as bytes, so that text can be joined token by token.

A tokenizer's decoder is read once into a `TokenDecoding`. Two kinds are in use by language models: byte-level (GPT-2,
Llama-3, Qwen) and SentencePiece's, which writes spaces as U+2581 and unknown bytes as `<0xNN>` (Llama-2, Mistral).
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers.decoders import Decoder

from halfmoon.errors import ModelError

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_level_alphabet() -> dict[str, int]:
    """The 256 printable characters that stand for bytes: printable Latin-1 for itself, the rest from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(byte): byte for byte in printable} | {chr(0x100 + rank): byte for rank, byte in enumerate(others)}


_ALPHABET = _byte_level_alphabet()


@dataclass(frozen=True, slots=True)
class TokenDecoding:
    """How a token's string becomes bytes.

    `replacements` are applied in order to strings that are not byte tokens. `strip_left` is the number of spaces that
    the whole text loses at its beginning, at most: those that encoding put there.
    """

    byte_level: bool = False
    byte_fallback: bool = False
    replacements: tuple[tuple[str, str], ...] = ()
    strip_left: int = 0

    def to_bytes(self, token: str) -> bytes:
        """UTF-8 bytes of a token, which may end inside a character."""
        if self.byte_level:
            if all(char in _ALPHABET for char in token):
                return bytes(_ALPHABET[char] for char in token)
            return token.encode()
        if self.byte_fallback and (match := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(match[1], 16)])
        for old, new in self.replacements:
            token = token.replace(old, new)
        return token.encode()


def decoding_of(decoder: Decoder | None) -> TokenDecoding:
    """Reads the decoder of a `tokenizers.Tokenizer`. Raises ModelError that names a decoder of an unknown kind."""
    if decoder is None:
        raise ModelError("the tokenizer has no decoder; its tokenizer.json must name one")
    steps = _flatten(json.loads(decoder.__getstate__()))
    if [step["type"] for step in steps if step["type"] != "Fuse"] == ["ByteLevel"]:
        return TokenDecoding(byte_level=True)
    return _sentencepiece(steps)


def _flatten(state: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if state["type"] != "Sequence":
        return [state]
    return [step for child in state["decoders"] for step in _flatten(child)]


def _sentencepiece(steps: Sequence[Mapping[str, Any]]) -> TokenDecoding:
    replacements: list[tuple[str, str]] = []
    byte_fallback = False
    strip_left = 0
    for step in steps:
        match step:
            case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)}:
                replacements.append((old, new))
            case {"type": "Metaspace", "replacement": str(old), "prepend_scheme": str(scheme)}:
                replacements.append((old, " "))
                strip_left = 0 if scheme == "never" else 1
            case {"type": "Strip", "content": " ", "start": int(start), "stop": 0}:
                strip_left = start
            case {"type": "ByteFallback"}:
                byte_fallback = True
            case {"type": "Fuse"}:
                pass
            case _:
                raise ModelError(f"the tokenizer's decoder has a step of an unsupported kind: {json.dumps(step)[:200]}")
    return TokenDecoding(byte_fallback=byte_fallback, replacements=tuple(replacements), strip_left=strip_left)
