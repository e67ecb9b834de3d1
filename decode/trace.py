"""What one request goes through at this worker, as spans: queue, then the prompt's KV or the prompt, then decode."""

from halfmoon.engine.request import Event, Progress, Started, Task, Tokens
from halfmoon.telemetry import OpenSpan, Phases
from halfmoon.telemetry import conventions as names
from halfmoon.telemetry.spans import Attributes
from halfmoon.v1 import decode_pb2
from kvtransfer import PullComplete


class DecodeTrace(Phases):
    """A context manager around one request."""

    def __init__(self, request: decode_pb2.DecodeRequest, task: Task) -> None:
        attributes: Attributes = {
            names.REQUEST_ID: request.request_id,
            names.INPUT_TOKENS: len(request.prompt_token_ids),
        }
        super().__init__("decode", attributes)
        self._task = task
        self._tokens = 0
        self._pages = 0

    def saw(self, event: Event | PullComplete) -> None:
        """Notes an event of the engine, or the end of the transfer, now."""
        match event:
            case Tokens():
                self._saw_tokens(len(event.tokens))
            case PullComplete():
                self.enter("generate")
            case Started() if self._task is Task.GENERATE:
                self.enter("compute", {names.CACHED_TOKENS: event.cached_tokens})
            case Progress():
                self.event("chunk", {names.COMPUTED_TOKENS: event.computed})
            case _:
                pass

    def wait_for_kv(self, missing: int) -> OpenSpan:
        """The transfer of `missing` pages begins."""
        return self.enter("wait for KV", {names.MISSING_PAGES: missing})

    def page_held(self) -> None:
        """One more of the missing pages is in the engine."""
        self._pages += 1
        self.event("page", {names.KV_PAGES: self._pages})

    def leave(self, error: BaseException | None = None) -> None:
        """Ends the present phase; the request's token count is told with the last."""
        if self._tokens:
            self.request.set({names.OUTPUT_TOKENS: self._tokens})
        super().leave(error)

    def _saw_tokens(self, count: int) -> None:
        if not self._tokens:
            if self._task is Task.GENERATE:
                self.enter("generate")
            self.event("first token")
        self._tokens += count
