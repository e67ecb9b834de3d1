"""Control tokens, and how text written by a user is kept from becoming one.

A control token is an added token that is special, or that is written the way control tokens are: `<|...|>`. Where such
a string stands in a message, a marker is put inside it before the chat template is rendered. The rendered text is then
tokenised by a second tokenizer, which finds the control tokens that the template wrote, removes the markers, and takes
everything else as text.
"""

import re
from collections.abc import Mapping
from itertools import pairwise

from tokenizers import AddedToken, Tokenizer, normalizers
from tokenizers.models import BPE

from halfmoon.errors import InvalidRequestError

MARKER = "\ufdd0\ufdd1\ufdd2"
"""Three noncharacters, which Unicode sets apart for use inside a program."""

_LOOKS_LIKE_CONTROL = re.compile(r"<[|｜].*[|｜]>", re.DOTALL)


def is_control(token: AddedToken) -> bool:
    """Whether a user's text must not become this token."""
    return token.special or _LOOKS_LIKE_CONTROL.fullmatch(token.content) is not None


class ControlShield:
    """Breaks control tokens in text (`cover`) and tokenises text that holds broken ones (`encode`).

    The second tokenizer shares the model of `backend`, which is by far its largest part, and is never changed.
    """

    def __init__(self, backend: Tokenizer) -> None:
        added = backend.get_added_tokens_decoder()
        controls = [token for token in added.values() if is_control(token)]
        # A single character cannot be broken by a marker inside it.
        self._contents = frozenset(token.content for token in controls if len(token.content) > 1)
        self._lengths = sorted({len(content) for content in self._contents})
        self._prefixes = frozenset(content[:end] for content in self._contents for end in range(1, len(content)))
        self._first = re.compile("|".join(sorted(re.escape(content[0]) for content in self._contents)) or r"(?!)")
        self._normalizer = backend.normalizer if any(token.normalized for token in controls) else None
        self._splits_all_text = isinstance(backend.model, BPE)
        self._shielded = _without_markers(backend, added)

    def cover(self, text: str) -> str:
        """`text` with every control token in it broken; the same object where there is none.

        An end of `text` that could be completed by what the template writes after it is broken off as well.
        """
        if not self._contents:
            return text
        cuts = [match.end() for match in self._first.finditer(text) if self._starts_control(text, match.start())]
        if self._ends_in_prefix(text):
            cuts.append(len(text))
        if not cuts and not self._normalises_to_control(text):
            return text
        return self._cut(text, cuts)

    def encode(self, text: str) -> list[int]:
        """Ids of a text that holds covered parts. Raises InvalidRequestError where the model cannot tell them apart."""
        if not self._splits_all_text:
            raise InvalidRequestError(
                "a message contains a control token of this model, which its tokenizer cannot take as plain text",
                param="messages",
            )
        return self._shielded.encode(text, add_special_tokens=False).ids

    def _cut(self, text: str, cuts: list[int]) -> str:
        # No cut at all means that only the normalised text holds a control token: a marker at the end shields it whole.
        bounds = [0, *(cuts or [len(text)])]
        pieces = [text[start:end] for start, end in pairwise(bounds)]
        return MARKER.join([*pieces, text[bounds[-1] :]])

    def _starts_control(self, text: str, start: int) -> bool:
        return any(text[start : start + length] in self._contents for length in self._lengths)

    def _ends_in_prefix(self, text: str) -> bool:
        return any(text[-length:] in self._prefixes for length in range(1, min(self._lengths[-1], len(text) + 1)))

    def _normalises_to_control(self, text: str) -> bool:
        if self._normalizer is None:
            return False
        normalised = self._normalizer.normalize_str(text)
        return any(self._starts_control(normalised, match.start()) for match in self._first.finditer(normalised))


def _without_markers(backend: Tokenizer, added: Mapping[int, AddedToken]) -> Tokenizer:
    """A tokenizer that differs from `backend` in two ways: markers are removed, and controls are found before that."""
    shielded = Tokenizer(backend.model)
    drop = normalizers.Replace(MARKER, "")
    shielded.normalizer = normalizers.Sequence([drop, backend.normalizer]) if backend.normalizer else drop
    if backend.pre_tokenizer is not None:
        shielded.pre_tokenizer = backend.pre_tokenizer
    tokens = [token for _, token in sorted(added.items())]
    shielded.add_tokens([_matched_as_written(token) if is_control(token) else token for token in tokens])
    return shielded


def _matched_as_written(token: AddedToken) -> AddedToken:
    return AddedToken(
        token.content,
        single_word=token.single_word,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=False,
        special=token.special,
    )
