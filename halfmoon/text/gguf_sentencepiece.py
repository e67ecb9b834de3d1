"""SentencePiece's BPE (`tokenizer.ggml.model = llama`) from the metadata of a GGUF file.

SentencePiece has no list of merges: of all neighbours that together are a piece, it joins those whose piece has the
best score. A list of merges in the order of these scores does the same.
"""

from collections.abc import Iterator, Mapping

import tokenizers
from tokenizers import decoders, normalizers
from tokenizers.models import BPE

from halfmoon.text.gguf_metadata import TokenizerMetadata, TokenType, added_token

_SPACE = "▁"


def sentencepiece_backend(metadata: TokenizerMetadata) -> tuple[tokenizers.Tokenizer, bool]:
    """The tokenizer, and that its kind of model wants a beginning-of-sequence token. Raises ModelError."""
    vocabulary, types = metadata.vocabulary(), metadata.types()
    kinds = dict(zip(vocabulary, types, strict=True))
    added = {token: kind for token, kind in kinds.items() if token and _found_as_written(token, kind)}
    scores = {
        token: score
        for token, score in zip(vocabulary, metadata.scores(), strict=True)
        if token not in added and kinds[token] != TokenType.BYTE
    }
    backend = tokenizers.Tokenizer(
        BPE(
            vocabulary,
            merges_by_score(scores),
            unk_token=next((token for token, kind in kinds.items() if kind == TokenType.UNKNOWN), None),
            fuse_unk=True,
            byte_fallback=TokenType.BYTE in types,
        )
    )
    _add_spaces(backend, prefix=metadata.flag("tokenizer.ggml.add_space_prefix", default=True))
    backend.add_tokens([added_token(token, kind) for token, kind in added.items()])
    return backend, True


def merges_by_score(scores: Mapping[str, float]) -> list[tuple[str, str]]:
    """Every way to put a piece together from two others, those of the best scores first.

    Only pieces in `scores` take part: control tokens and bytes must never be the result of joining text. Of several
    ways to the same piece, the one with the longest left part comes first.
    """
    joined = sorted(
        ((score, left, right) for piece, score in scores.items() for left, right in _halves(piece, scores)),
        key=lambda merge: (merge[0], len(merge[1]), len(merge[2])),
        reverse=True,
    )
    return [(left, right) for _, left, right in joined]


def _halves(piece: str, pieces: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    for cut in range(1, len(piece)):
        left, right = piece[:cut], piece[cut:]
        if left in pieces and right in pieces:
            yield left, right


def _found_as_written(token: str, kind: int) -> bool:
    """A token of the user that holds a written space would never be found in text, where spaces are not yet written."""
    return kind in TokenType.special() or (kind == TokenType.USER_DEFINED and _SPACE not in token)


def _add_spaces(backend: tokenizers.Tokenizer, *, prefix: bool) -> None:
    """Spaces become U+2581 and back; with `prefix`, one more stands before every stretch of text."""
    write, strip = normalizers.Replace(" ", _SPACE), decoders.Strip(" ", 1, 0)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), write]) if prefix else write
    steps = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, strip] if prefix else steps)
