"""The tokenizer of a model: text to ids and back."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import tokenizers

from halfmoon.errors import InvalidRequestError
from halfmoon.text.control_tokens import ControlShield
from halfmoon.text.decoding import decoding_of


class Tokenizer:
    """Encodes prompts and decodes outputs; never changed once made, and safe to use from several threads.

    `backend` becomes the property of this object. `named_tokens` are the strings of `bos_token`, `eos_token` and so on,
    as chat templates know them. `add_bos` None leaves it to the backend's post-processor whether raw prompts begin
    with a beginning-of-sequence token. Raises ModelError where the backend's decoder is of an unknown kind.
    """

    def __init__(
        self, backend: tokenizers.Tokenizer, *, named_tokens: Mapping[str, str], add_bos: bool | None = None
    ) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self.named_tokens: Mapping[str, str] = MappingProxyType(dict(named_tokens))
        self.shield = ControlShield(backend)
        added = backend.get_added_tokens_decoder()
        self._special = frozenset(token_id for token_id, token in added.items() if token.special)
        self.vocab_size = max(backend.get_vocab_size(), *(token_id + 1 for token_id in added), 0)
        self._decoding = decoding_of(backend.decoder)
        self._bytes: dict[int, bytes] = {}
        self._prefix = self._prompt_prefix(add_bos)

    @property
    def strip_left(self) -> int:
        """Spaces that a text loses at its very beginning when it is decoded, at most."""
        return self._decoding.strip_left

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        """Ids of a raw prompt, in which control tokens are recognised.

        With `add_special` the ids begin with what the model wants before a prompt (usually one beginning-of-sequence
        token), unless the text already does. Raises InvalidRequestError for text that is not valid Unicode.
        """
        ids = self._encode(text)
        if not add_special or ids[: len(self._prefix)] == self._prefix:
            return ids
        return self._prefix + ids

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Text of the ids; bytes that are no UTF-8 become U+FFFD, ids outside the vocabulary nothing."""
        text = b"".join(self.visible_bytes(ids, skip_special=skip_special)).decode("utf-8", "replace")
        kept = text.lstrip(" ")
        return text[min(self.strip_left, len(text) - len(kept)) :]

    def visible_bytes(self, ids: Iterable[int], *, skip_special: bool) -> Iterable[bytes]:
        """Bytes of each id in turn, without those of special tokens where `skip_special` says so."""
        return (self.token_bytes(token_id) for token_id in ids if not (skip_special and token_id in self._special))

    def token_bytes(self, token_id: int) -> bytes:
        """UTF-8 bytes of one token, which may end inside a character; empty for an id outside the vocabulary."""
        known = self._bytes.get(token_id)
        if known is not None:
            return known
        token = self._backend.id_to_token(token_id) if 0 <= token_id < self.vocab_size else None
        if token is None:
            return b""
        return self._bytes.setdefault(token_id, self._decoding.to_bytes(token))

    def is_special(self, token_id: int) -> bool:
        """Whether the token stands for no text."""
        return token_id in self._special

    def token_id(self, token: str) -> int | None:
        """Id of a token by its string in the vocabulary."""
        return self._backend.token_to_id(token)

    @property
    def adds_bos(self) -> bool:
        """Whether a raw prompt begins with a token of its own."""
        return bool(self._prefix)

    def save(self, file: Path) -> None:
        """Writes the `tokenizers` library's JSON. Raises OSError."""
        file.write_text(self._backend.to_str(pretty=True), "utf-8")

    def _encode(self, text: str) -> list[int]:
        try:
            return self._backend.encode(text, add_special_tokens=False).ids
        except TypeError as error:
            raise InvalidRequestError("the text holds a lone surrogate, which is not valid Unicode") from error

    def _prompt_prefix(self, add_bos: bool | None) -> list[int]:
        """What stands before a raw prompt. A post-processor may also put something behind it; that is left out."""
        if add_bos is not None:
            bos = self.token_id(self.named_tokens.get("bos_token", ""))
            return [bos] if add_bos and bos is not None else []
        plain = self._backend.encode("a", add_special_tokens=False).ids
        processed = self._backend.encode("a", add_special_tokens=True).ids
        starts = range(len(processed) - len(plain) + 1)
        return next((processed[:start] for start in starts if processed[start : start + len(plain)] == plain), [])
