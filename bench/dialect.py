"""The body of a request, in what the server understands of it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec

from bench.workloads import Request


@dataclass(frozen=True, slots=True)
class Dialect:
    """Which fields beyond OpenAI's own a server takes.

    `ignore_eos`: an answer goes on to its full length. `token_ids`: chunks tell the ids of their tokens.
    """

    model: str
    ignore_eos: bool = True
    token_ids: bool = True
    temperature: float = 0.0

    def body(self, request: Request) -> bytes:
        """JSON of `POST /v1/completions`, streamed and with usage."""
        fields: dict[str, object] = {
            "model": self.model,
            "prompt": request.prompt,
            "max_tokens": request.max_tokens,
            "temperature": self.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.ignore_eos and request.exact:
            fields["ignore_eos"] = True
        if self.token_ids:
            fields["return_token_ids"] = True
        return msgspec.json.encode(fields)

    def plainer(self) -> Iterator["Dialect"]:
        """What to try in turn when a server refuses, most telling first; this one is the first."""
        yield self
        yield replace(self, token_ids=False)
        yield replace(self, ignore_eos=False)
        yield replace(self, ignore_eos=False, token_ids=False)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the report must say of a server that takes less than all."""
        notes = []
        if not self.ignore_eos:
            notes.append("the server refuses ignore_eos: answers end where the model ends them")
        if not self.token_ids:
            notes.append("the server tells no token ids: how many tokens a chunk holds is estimated from its text")
        return tuple(notes)
