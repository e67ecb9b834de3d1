"""Metrics on the OpenTelemetry SDK, shown in Prometheus' text format."""

import threading
from collections.abc import Callable, Iterable, Sequence

from opentelemetry import metrics as otel
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry, generate_latest

from halfmoon.errors import InternalError
from halfmoon.telemetry.histogram import Histogram
from halfmoon.telemetry.vllm_names import VllmNames

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

PREFIX = "halfmoon_"

Reading = tuple[float, dict[str, str]]
"""A gauge's value and its labels."""

LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds in seconds that fit latencies from one decode step to a whole request."""


class Counter:
    """Only ever grows; shown with `_total` at the end of its name."""

    def __init__(self, instrument: otel.Counter) -> None:
        self._instrument = instrument

    def add(self, amount: float = 1, **labels: str) -> None:
        """Adds `amount` of 0 or more."""
        self._instrument.add(amount, labels)


class UpDown:
    """A sum that grows and shrinks: things under way."""

    def __init__(self, instrument: otel.UpDownCounter) -> None:
        self._instrument = instrument

    def add(self, amount: float = 1, **labels: str) -> None:
        """Adds `amount`, which may be negative."""
        self._instrument.add(amount, labels)


class Metrics:
    """The metrics of one program. Instances share nothing, so many can live in one process.

    Names begin with `halfmoon_` and are given once; a second use is an InternalError. Thread-safe.
    """

    def __init__(self, program: str) -> None:
        self.program = program
        self._registry = CollectorRegistry()
        reader = PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False, registry=self._registry)
        self._provider = MeterProvider(
            metric_readers=[reader],
            resource=Resource({"service.name": f"halfmoon-{program}"}),
            shutdown_on_exit=False,
            exemplar_filter=AlwaysOffExemplarFilter(),
        )
        self._meter = self._provider.get_meter("halfmoon")
        self._aliases: CollectorRegistry | None = None
        self._kinds: dict[str, str] = {}
        self._rendering = threading.Lock()

    def counter(self, name: str, description: str) -> Counter:
        """A counter; it shows from its first `add` (which may add 0)."""
        return Counter(self._meter.create_counter(self._claim(name, "counter"), description=description))

    def up_down(self, name: str, description: str) -> UpDown:
        """A sum of things under way; it shows from its first `add`."""
        return UpDown(self._meter.create_up_down_counter(self._claim(name, "gauge"), description=description))

    def histogram(self, name: str, description: str, buckets: Sequence[float] = LATENCY_BUCKETS) -> Histogram:
        """A histogram with the upper bounds of its buckets, ascending, without infinity."""
        histogram = Histogram(self._claim(name, "histogram"), description, buckets)
        self._registry.register(histogram)
        return histogram

    def gauge(self, name: str, description: str, callback: Callable[[], float | Iterable[Reading]]) -> None:
        """A value that is asked for when metrics are read: a number, or readings with labels.

        `callback` runs on the reading thread and must neither block nor raise.
        """

        claimed = self._claim(name, "gauge")
        self._meter.create_observable_gauge(claimed, [_observer(callback)], description=description)

    def counted(self, name: str, description: str, callback: Callable[[], float | Iterable[Reading]]) -> None:
        """A counter that is kept elsewhere: like a gauge, but its value only ever grows."""
        claimed = self._claim(name, "counter")
        self._meter.create_observable_counter(claimed, [_observer(callback)], description=description)

    @property
    def kinds(self) -> dict[str, str]:
        """The metrics by their names as shown: "counter", "gauge" or "histogram"."""
        return {f"{name}_total" if kind == "counter" else name: kind for name, kind in self._kinds.items()}

    def show_vllm_names(self, model: Callable[[], str]) -> None:
        """Shows what is known here under vLLM's names too, once `model()` gives the served model's name."""
        self._aliases = CollectorRegistry()
        self._aliases.register(VllmNames(self._registry.collect, model))

    def render(self) -> bytes:
        """All metrics in Prometheus' text format (`CONTENT_TYPE`)."""
        with self._rendering:
            own = generate_latest(self._registry)
            return own if self._aliases is None else own + generate_latest(self._aliases)

    def close(self) -> None:
        """Ends recording."""
        self._provider.shutdown()

    def _claim(self, name: str, kind: str) -> str:
        if not name.startswith(PREFIX):
            raise InternalError(f"metric {name} does not begin with {PREFIX}")
        if name in self._kinds:
            raise InternalError(f"metric {name} is made twice")
        self._kinds[name] = kind
        return name


def _observer(
    callback: Callable[[], float | Iterable[Reading]],
) -> Callable[[otel.CallbackOptions], list[otel.Observation]]:
    def observe(_: otel.CallbackOptions) -> list[otel.Observation]:
        value = callback()
        if isinstance(value, int | float):
            return [otel.Observation(value)]
        return [otel.Observation(number, labels) for number, labels in value]

    return observe
