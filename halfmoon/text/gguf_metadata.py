"""Typed access to what a GGUF file says of its tokenizer."""

from collections.abc import Mapping, Sequence
from enum import IntEnum

from tokenizers import AddedToken

from halfmoon.errors import ModelError
from halfmoon.weights.gguf_header import MetadataValue

_TOKENS = "tokenizer.ggml.tokens"


class TokenType(IntEnum):
    """`tokenizer.ggml.token_type`, the kinds that matter."""

    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    BYTE = 6

    @classmethod
    def special(cls) -> frozenset[int]:
        """Kinds that stand for no text."""
        return frozenset({cls.UNKNOWN, cls.CONTROL})


class TokenizerMetadata:
    """A file's metadata by key; every error names the key."""

    def __init__(self, values: Mapping[str, MetadataValue]) -> None:
        self._values = values

    def optional_text(self, key: str) -> str | None:
        """The text of a key that may be missing."""
        value = self._values.get(key)
        return value if isinstance(value, str) else None

    def text(self, key: str) -> str:
        """The text of a key. Raises ModelError when it is missing."""
        value = self.optional_text(key)
        if value is None:
            raise _missing(key)
        return value

    def texts(self, key: str) -> list[str]:
        """A list of texts. Raises ModelError when it is missing."""
        return [str(item) for item in self._list(key)]

    def flag(self, key: str, *, default: bool) -> bool:
        """A switch that may be missing."""
        return bool(self._values.get(key, default))

    def token(self, key: str) -> int | None:
        """A token's id; None where the key is missing or names no token of the vocabulary."""
        value = self._values.get(key)
        known = isinstance(value, int) and 0 <= value < len(self._list(_TOKENS))
        return value if isinstance(value, int) and known else None

    def vocabulary(self) -> dict[str, int]:
        """Ids of all tokens, in their order. Raises ModelError when a token stands twice."""
        tokens = self.texts(_TOKENS)
        vocabulary = {token: number for number, token in enumerate(tokens)}
        if len(vocabulary) != len(tokens):
            raise ModelError(f"the vocabulary ({_TOKENS}) has a token twice")
        return vocabulary

    def types(self) -> list[int]:
        """The type of each token. Raises ModelError when there are more or fewer than tokens."""
        return [value for value in self._per_token("tokenizer.ggml.token_type", "types") if isinstance(value, int)]

    def scores(self) -> list[float]:
        """The score of each token. Raises ModelError when there are more or fewer than tokens."""
        values = self._per_token("tokenizer.ggml.scores", "scores")
        return [float(value) for value in values if isinstance(value, int | float)]

    def _per_token(self, key: str, what: str) -> Sequence[MetadataValue]:
        values, tokens = self._list(key), self._list(_TOKENS)
        if len(values) != len(tokens) or not all(isinstance(value, int | float) for value in values):
            raise ModelError(f"{len(values)} token {what} for {len(tokens)} tokens; the file is damaged")
        return values

    def _list(self, key: str) -> Sequence[MetadataValue]:
        value = self._values.get(key)
        if not isinstance(value, list):
            raise _missing(key)
        return value


def added_token(token: str, kind: int) -> AddedToken:
    """A token that is looked for in the text as it is written."""
    return AddedToken(token, special=kind in TokenType.special(), normalized=False)


def _missing(key: str) -> ModelError:
    return ModelError(f"the metadata has no {key}; convert the model again with a current converter")
