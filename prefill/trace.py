"""What one prompt goes through at this worker, as spans: offer, queue, compute; publishing goes on beside them."""

from halfmoon.engine.request import Event, Progress, Started, Tokens
from halfmoon.telemetry import Phases
from halfmoon.telemetry import conventions as names
from halfmoon.telemetry.spans import Attributes
from halfmoon.v1 import prefill_pb2


class PrefillTrace(Phases):
    """A context manager around one request."""

    def __init__(self, request: prefill_pb2.PrefillRequest) -> None:
        attributes: Attributes = {
            names.REQUEST_ID: request.request_id,
            names.INPUT_TOKENS: len(request.prompt_token_ids),
        }
        super().__init__("prefill", attributes)

    def saw(self, event: Event) -> None:
        """Notes an event of the engine, now."""
        match event:
            case Started():
                self.enter("compute", {names.CACHED_TOKENS: event.cached_tokens})
            case Progress():
                self.event("chunk", {names.COMPUTED_TOKENS: event.computed})
            case Tokens():
                self.leave()
            case _:
                pass
