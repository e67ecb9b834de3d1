"""A streamed completion, read as it comes."""

import msgspec

from bench.arithmetic import apportion
from bench.samples import Sample
from bench.sse import EventReader
from halfmoon.errors import UnavailableError

_DONE = b"[DONE]"


class _Choice(msgspec.Struct):
    text: str = ""
    token_ids: list[int] | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: object = None


_decoder = msgspec.json.Decoder(_Chunk)


class Answer:
    """Collects chunks with the times at which they came.

    Tokens are counted by the answer's usage. Which chunk brought how many is known from its token ids, or, from servers
    that do not send them, estimated from its share of the text.
    """

    def __init__(self) -> None:
        self.times: list[float] = []
        self.finished: float | None = None
        self._reader = EventReader()
        self._tokens: list[int] = []
        self._characters: list[int] = []
        self._usage: _Usage | None = None

    def push(self, data: bytes, now: float) -> None:
        """Takes what came at the time `now`. Raises UnavailableError for an error that the server sent."""
        for payload in self._reader.push(data):
            if payload != _DONE:
                self._take(payload, now)

    def into(self, sample: Sample) -> None:
        """Fills in the sample. Raises UnavailableError for an answer without an end."""
        if self.finished is None:
            raise UnavailableError("the stream ended before the answer did")
        sample.finished = self.finished
        sample.arrivals = self.times
        sample.counts = self._counts()
        if self._usage is not None:
            sample.prompt_tokens = self._usage.prompt_tokens

    def _take(self, payload: bytes, now: float) -> None:
        try:
            chunk = _decoder.decode(payload)
        except msgspec.DecodeError as error:
            raise UnavailableError(f"the stream holds what is no chunk: {error}") from None
        if chunk.error is not None:
            raise UnavailableError(f"the server ended the stream: {_message(chunk.error)}")
        self._usage = chunk.usage or self._usage
        for choice in chunk.choices:
            tokens = len(choice.token_ids) if choice.token_ids else 0
            if tokens or choice.text:
                self._add(now, tokens, len(choice.text))
            if choice.finish_reason is not None:
                self.finished = now

    def _add(self, now: float, tokens: int, characters: int) -> None:
        if self.times and self.times[-1] == now:
            self._tokens[-1] += tokens
            self._characters[-1] += characters
            return
        self.times.append(now)
        self._tokens.append(tokens)
        self._characters.append(characters)

    def _counts(self) -> list[int]:
        total = self._usage.completion_tokens if self._usage is not None else sum(self._tokens) or len(self.times)
        if sum(self._tokens) == total:
            return self._tokens
        return _spread(total, self._characters)


def _spread(total: int, characters: list[int]) -> list[int]:
    """Tokens of chunks of so many characters: one each where they suffice, and the rest by length."""
    if total < len(characters):
        return apportion(total, characters)
    return [1 + more for more in apportion(total - len(characters), characters)]


def _message(error: object) -> str:
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)
