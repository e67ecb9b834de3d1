"""What a gateway measures."""

from collections.abc import Callable

from gateway.record import RequestRecord
from halfmoon.telemetry import Metrics


class GatewayMetrics:
    """The gateway's instruments on a program's metrics; made once for each `Metrics`."""

    def __init__(self, metrics: Metrics, *, running: Callable[[], int], streams_open: Callable[[], int]) -> None:
        self.render = metrics.render
        self.waiting = 0
        self.generating = 0
        self._requests = metrics.counter("halfmoon_gateway_requests", "HTTP requests ended, by route and status")
        self._tokens = metrics.counter("halfmoon_gateway_tokens", "Tokens of requests that succeeded, by kind")
        self._choices = metrics.counter("halfmoon_gateway_choices", "Choices ended, by finish reason")
        self._seconds = metrics.histogram("halfmoon_gateway_request_seconds", "From request to the end of its answer")
        self._first = metrics.histogram("halfmoon_gateway_ttft_seconds", "From request to the first token").series()
        self._between = metrics.histogram("halfmoon_gateway_itl_seconds", "Between tokens of one choice").series()
        metrics.gauge("halfmoon_gateway_requests_running", "API requests under way", running)
        metrics.gauge(
            "halfmoon_gateway_requests_waiting", "Generations without a first token yet", lambda: self.waiting
        )
        metrics.gauge("halfmoon_gateway_requests_generating", "Generations past it", lambda: self.generating)
        metrics.gauge("halfmoon_gateway_streams_open", "Generate calls open to routers", streams_open)

    def ended(self, record: RequestRecord) -> None:
        """Counts a request that has ended."""
        labels = {"route": record.route, "status": str(record.status)}
        self._requests.add(1, **labels)
        self._seconds.series(**labels).record(record.seconds)
        if record.prompt_tokens is not None and record.completion_tokens is not None:
            self._tokens.add(record.prompt_tokens, kind="prompt")
            self._tokens.add(record.completion_tokens, kind="completion")

    def finished(self, reason: str) -> None:
        """Counts a choice that has ended."""
        self._choices.add(1, finish_reason=reason)

    def first_token(self, seconds: float) -> None:
        """Records the time to first token."""
        self._first.record(seconds)

    def next_tokens(self, seconds: float, count: int) -> None:
        """Records `count` tokens that came together `seconds` after those before: the time for each."""
        self._between.record(seconds / count, count)
