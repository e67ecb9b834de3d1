"""How fast the tokens of one HTTP request come."""

import time
from types import TracebackType
from typing import Self

from gateway.metrics import GatewayMetrics
from halfmoon.v1 import common_pb2
from halfmoon.v1.router_pb2 import GenerateResponse

_REASONS = {
    common_pb2.FINISH_REASON_STOP: "stop",
    common_pb2.FINISH_REASON_LENGTH: "length",
    common_pb2.FINISH_REASON_ABORT: "abort",
}


class Pace:
    """Records the time to the first token of a request and the times between the tokens of each choice.

    A context manager around the generation, which counts as waiting until its first token and as generating after it.
    """

    def __init__(self, metrics: GatewayMetrics, started: float) -> None:
        self._metrics = metrics
        self._started = started
        self._last: dict[tuple[int, int], float] = {}

    def __enter__(self) -> Self:
        self._metrics.waiting += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._last:
            self._metrics.generating -= 1
        else:
            self._metrics.waiting -= 1

    def saw(self, prompt: int, event: GenerateResponse) -> None:
        """Notes an event of the request number `prompt`, now."""
        delta = event.delta
        tokens = len(delta.token_ids)
        if tokens:
            self._saw_tokens((prompt, delta.index), tokens)
        if delta.finish_reason:
            self._metrics.finished(_REASONS.get(delta.finish_reason, "other"))

    def _saw_tokens(self, choice: tuple[int, int], count: int) -> None:
        now = time.perf_counter()
        if not self._last:
            self._metrics.first_token(now - self._started)
            self._metrics.waiting -= 1
            self._metrics.generating += 1
        elif choice in self._last:
            self._metrics.next_tokens(now - self._last[choice], count)
        self._last[choice] = now
