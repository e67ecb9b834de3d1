"""Text of a growing list of tokens, piece by piece."""

import codecs
from collections.abc import Iterable, Sequence

from halfmoon.text.tokenizer import Tokenizer

_LONGEST_CHARACTER = 4


class IncrementalDetokenizer:
    """Turns the tokens of one choice into text as they come.

    What `push` and `flush` return, joined, equals `tokenizer.decode` of all tokens. An incomplete character is held
    until it is complete or `flush` says that nothing follows, so U+FFFD appears only for bytes that are no UTF-8.
    `prompt_ids` are what stands before: a character that the prompt left incomplete is completed, and a leading space
    is kept.
    The work for a token does not depend on the tokens before it.
    """

    def __init__(self, tokenizer: Tokenizer, prompt_ids: Sequence[int] = (), *, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        before = self._end_of(prompt_ids)
        self._decoder.decode(before)
        self._to_strip = 0 if before else tokenizer.strip_left

    def push(self, token_ids: Iterable[int]) -> str:
        """Text that has become certain with these tokens."""
        data = b"".join(self._tokenizer.visible_bytes(token_ids, skip_special=self._skip_special))
        return self._strip(self._decoder.decode(data))

    def flush(self) -> str:
        """What was held back, once no more tokens come: U+FFFD for an incomplete character, else nothing."""
        return self._strip(self._decoder.decode(b"", final=True))

    def _end_of(self, prompt_ids: Sequence[int]) -> bytes:
        """The last bytes of the prompt: enough to hold any incomplete character."""
        end = b""
        for data in self._tokenizer.visible_bytes(reversed(prompt_ids), skip_special=self._skip_special):
            end = data + end
            if len(end) >= _LONGEST_CHARACTER:
                break
        return end

    def _strip(self, text: str) -> str:
        while self._to_strip and text:
            if not text.startswith(" "):
                self._to_strip = 0
                break
            text = text[1:]
            self._to_strip -= 1
        return text
