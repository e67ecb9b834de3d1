"""Tokens and log-probabilities as JSON can show them."""

import codecs
from collections.abc import Sequence

from gateway.schema.common import PromptLogprob, PromptLogprobs
from halfmoon.v1.common_pb2 import TokenLogprob, TokenLogprobs

LEAST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON does not have."""


def finite(logprob: float) -> float:
    """A log-probability that JSON can carry."""
    return logprob if LEAST_LOGPROB < logprob < -LEAST_LOGPROB else LEAST_LOGPROB


def token_text(token_id: int, token_bytes: bytes, *, as_id: bool) -> str:
    """A token as a string: its text, `bytes:\\x..` where it is part of a character, or `token_id:..` when asked."""
    if as_id:
        return f"token_id:{token_id}"
    try:
        return token_bytes.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token_bytes)


def prompt_logprobs(positions: Sequence[TokenLogprobs], count: int, *, as_id: bool) -> PromptLogprobs:
    """For each prompt token the `count` most likely ones and the one that stands there, by id; null for the first."""
    return [_candidates(position, count, as_id) if position.HasField("chosen") else None for position in positions]


def _candidates(position: TokenLogprobs, count: int, as_id: bool) -> dict[str, PromptLogprob]:
    return {
        str(entry.token_id): PromptLogprob(
            finite(entry.logprob), entry.rank or None, token_text(entry.token_id, entry.token_bytes, as_id=as_id)
        )
        for entry in candidates(position, count)
    }


def candidates(position: TokenLogprobs, count: int) -> list[TokenLogprob]:
    """The `count` most likely tokens of a position, best first, then the chosen one unless it is among them."""
    top = list(position.top[:count])
    if position.HasField("chosen") and all(entry.token_id != position.chosen.token_id for entry in top):
        top.append(position.chosen)
    return top


class TextOffsets:
    """Where in a choice's text each token begins, in characters; a token inside a character begins with it."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = 0

    def next(self, token_bytes: bytes) -> int:
        """The offset of the token whose bytes these are; moves on past it."""
        offset = self._offset
        self._offset += len(self._decoder.decode(token_bytes))
        return offset
