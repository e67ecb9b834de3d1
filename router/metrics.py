"""What a router counts."""

from collections import Counter
from collections.abc import Callable

from halfmoon.telemetry import Metrics, Reading
from router.fleet import Fleet


class RouterMetrics:
    """The instruments of one router."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.running = metrics.up_down("halfmoon_router_requests_running", "Requests whose first token was sent.")
        self.waiting = metrics.up_down("halfmoon_router_requests_waiting", "Requests without a first token yet.")
        self.requests = metrics.counter("halfmoon_router_requests", "Requests ended, by outcome.")
        self.plans = metrics.counter("halfmoon_router_plans", "Plans made, by reason: split, or why not.")
        self.failed_attempts = metrics.counter(
            "halfmoon_router_attempts_failed", "Attempts at a request that broke with a worker."
        )
        self.prompt_tokens = metrics.counter(
            "halfmoon_router_prompt_tokens", "Prompt tokens of requests that were planned."
        )
        self.cached_tokens = metrics.counter("halfmoon_router_cached_tokens", "Prompt tokens found in a prefix cache.")
        self.generated_tokens = metrics.counter("halfmoon_router_generated_tokens", "Tokens sent to clients.")
        first = metrics.histogram("halfmoon_router_ttft_seconds", "From arrival to the first token.")
        gap = metrics.histogram("halfmoon_router_itl_seconds", "Between tokens of one choice.")
        whole = metrics.histogram("halfmoon_router_request_seconds", "From arrival to the end.")
        self.first_token, self.token_gap, self.request = first.series(), gap.series(), whole.series()
        self.running.add(0)
        self.waiting.add(0)

    def watch_fleet(self, fleet: Fleet) -> None:
        """Shows the workers by role and state, and the size of the prefix index."""

        def workers() -> list[Reading]:
            counts = Counter((worker.role.value, worker.state.value) for worker in fleet.workers)
            return [(count, {"role": role, "state": state}) for (role, state), count in counts.items()]

        self._metrics.gauge("halfmoon_router_workers", "Workers known, by role and state.", workers)
        self._metrics.gauge(
            "halfmoon_router_prefix_pages", "Distinct pages in the prefix index.", lambda: len(fleet.prefixes)
        )

    def watch(self, name: str, description: str, count: Callable[[], int]) -> None:
        """Shows a count of things that must return to zero."""
        self._metrics.gauge(name, description, count)
