"""What both kinds of answer share."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Generic, TypeVar

import msgspec

from gateway.parsing.call import Call
from gateway.schema.common import PromptTokensDetails, Usage
from halfmoon.errors import InternalError
from halfmoon.v1 import common_pb2
from halfmoon.v1.common_pb2 import FinishReason
from halfmoon.v1.router_pb2 import ChoiceDelta, GenerateResponse, PromptInfo
from halfmoon.wire import finish_from_pb

ChunkT = TypeVar("ChunkT", bound=msgspec.Struct)


class Answer(ABC, Generic[ChunkT]):
    """One answer under construction. `feed` it every event in order, then `finish` it."""

    id_prefix: ClassVar[str]
    param_names: ClassVar[Mapping[str, str]] = {}
    """What this API calls parameters that the router knows by other names."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.id = f"{self.id_prefix}-{call.request_id}"
        self.created = int(time.time())
        self.model = ""
        self._finished = 0
        self._usages: list[common_pb2.Usage] = []

    def feed(self, prompt: int, event: GenerateResponse) -> list[ChunkT]:
        """The chunks that an event of the request number `prompt` adds; often one, perhaps none."""
        match event.WhichOneof("event"):
            case "prompt":
                self.model = event.prompt.model
                return self._open(prompt, event.prompt)
            case "delta":
                self._finished += event.delta.finish_reason != FinishReason.FINISH_REASON_UNSPECIFIED
                return self._extend(prompt, event.delta)
            case "usage":
                self._usages.append(event.usage)
        return []

    def finish(self) -> Usage:
        """The usage of all requests. Raises InternalError when the router left a choice or its usage out."""
        requests = len(self.call.requests)
        if len(self._usages) != requests or self._finished != requests * self.call.choices:
            raise InternalError("the router's stream ended before every choice had finished")
        prompt = sum(usage.prompt_tokens for usage in self._usages)
        completion = sum(usage.completion_tokens for usage in self._usages)
        cached = sum(usage.cached_tokens for usage in self._usages)
        return Usage(prompt, completion, prompt + completion, PromptTokensDetails(cached))

    @abstractmethod
    def usage_chunk(self, usage: Usage) -> ChunkT:
        """The last chunk of a stream that reports usage: without choices."""

    @abstractmethod
    def join(self, chunks: Sequence[ChunkT], usage: Usage) -> msgspec.Struct:
        """The whole answer of which `chunks` are the parts."""

    @abstractmethod
    def _open(self, prompt: int, info: PromptInfo) -> list[ChunkT]:
        """The chunks that begin the choices of one prompt."""

    @abstractmethod
    def _extend(self, prompt: int, delta: ChoiceDelta) -> list[ChunkT]:
        """The chunks for new output of one choice."""

    def _tells_nothing(self, delta: ChoiceDelta) -> bool:
        """Whether a delta has nothing that this client asked for."""
        view = self.call.view
        ended = delta.finish_reason != FinishReason.FINISH_REASON_UNSPECIFIED
        return not (delta.text or ended or (delta.token_ids and (view.token_ids or view.logprobs is not None)))


def finish_reason(delta: ChoiceDelta) -> str | None:
    """The API's word for why the choice ended, None while it goes on."""
    reason = finish_from_pb(delta.finish_reason)
    return None if reason is None else reason.value


def stop_reason(delta: ChoiceDelta) -> int | str | None:
    """The stop token or stop string that ended the choice; None for the model's own end."""
    match delta.WhichOneof("stop_reason"):
        case "stop_token_id":
            return delta.stop_token_id
        case "stop_string":
            return delta.stop_string
    return None
