"""How fast the tokens of one HTTP request come."""

import time

from gateway.metrics import GatewayMetrics
from halfmoon.v1.router_pb2 import GenerateResponse


class Pace:
    """Records the time to the first token of a request and the times between the tokens of each choice."""

    def __init__(self, metrics: GatewayMetrics, started: float) -> None:
        self._metrics = metrics
        self._started = started
        self._last: dict[tuple[int, int], float] = {}

    def saw(self, prompt: int, event: GenerateResponse) -> None:
        """Notes an event of the request number `prompt`, now."""
        tokens = len(event.delta.token_ids)
        if not tokens:
            return
        now = time.perf_counter()
        choice = (prompt, event.delta.index)
        if not self._last:
            self._metrics.first_token(now - self._started)
        elif choice in self._last:
            self._metrics.next_tokens(now - self._last[choice], tokens)
        self._last[choice] = now
