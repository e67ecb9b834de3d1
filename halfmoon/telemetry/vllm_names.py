"""vLLM's names for what a program measures, shown beside its own for dashboards and autoscalers that exist already.

Nothing is measured twice: at each reading the values are taken over from Halfmoon's metrics. Every name is shown by one
kind of program alone, so that sums over all programs are right.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

Families = Mapping[str, Metric]
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Alias:
    """`name` is the sum of the metrics `sources`, over `total` where there is one; without `_total` in each name.

    Of the sources, the samples whose labels agree with `where` count; labels in `renamed` are kept, under a new name.
    """

    name: str
    kind: str
    description: str
    sources: tuple[str, ...]
    total: str | None = None
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)

    def metric(self, families: Families, model: str) -> Metric | None:
        """The metric with its samples; None when this program does not have the sources."""
        if any(source not in families for source in self.sources):
            return None
        sums: dict[tuple[str, Labels], float] = defaultdict(float)
        for source in self.sources:
            for sample in filter(self._counts, families[source].samples):
                sums[sample.name.removeprefix(source), self._labels(sample, model)] += sample.value
        share = 1.0 if self.total is None else sum(sample.value for sample in families[self.total].samples)
        metric = Metric(self.name, self.description, self.kind)
        for (suffix, labels), value in sums.items():
            metric.add_sample(self.name + suffix, dict(labels), value / share if share else 0.0)
        return metric

    def _counts(self, sample: Sample) -> bool:
        return all(sample.labels.get(label) in values for label, values in self.where.items())

    def _labels(self, sample: Sample, model: str) -> Labels:
        kept = {new: sample.labels[old] for old, new in self.renamed.items() if old in sample.labels}
        if "le" in sample.labels:
            kept["le"] = sample.labels["le"]
        return tuple({"model_name": model, "engine": "0", **kept}.items())


_GENERATION = {"route": ("/v1/completions", "/v1/chat/completions"), "status": ("200",)}
_PAGES = (("halfmoon_worker_pages_used",), "halfmoon_worker_pages_total")
_CACHED = "halfmoon_worker_prompt_tokens_cached"
_GAPS = ("halfmoon_gateway_itl_seconds",)
_TOKENS = ("halfmoon_gateway_tokens",)

ALIASES = (
    Alias("vllm:num_requests_running", "gauge", "Requests being answered", ("halfmoon_gateway_requests_generating",)),
    Alias("vllm:num_requests_waiting", "gauge", "Requests without a token", ("halfmoon_gateway_requests_waiting",)),
    Alias("vllm:time_to_first_token_seconds", "histogram", "To the first token", ("halfmoon_gateway_ttft_seconds",)),
    Alias("vllm:inter_token_latency_seconds", "histogram", "Between tokens", _GAPS),
    Alias("vllm:time_per_output_token_seconds", "histogram", "Between tokens, by its older name", _GAPS),
    Alias(
        "vllm:e2e_request_latency_seconds",
        "histogram",
        "Whole requests that succeeded",
        ("halfmoon_gateway_request_seconds",),
        where=_GENERATION,
    ),
    Alias("vllm:prompt_tokens", "counter", "Prompt tokens", _TOKENS, where={"kind": ("prompt",)}),
    Alias("vllm:generation_tokens", "counter", "Generated tokens", _TOKENS, where={"kind": ("completion",)}),
    Alias(
        "vllm:request_success",
        "counter",
        "Choices ended, by reason",
        ("halfmoon_gateway_choices",),
        renamed={"finish_reason": "finished_reason"},
    ),
    Alias("vllm:kv_cache_usage_perc", "gauge", "Share of the pages in use, from 0 to 1", *_PAGES),
    Alias("vllm:gpu_cache_usage_perc", "gauge", "Share of the pages in use, by its older name", *_PAGES),
    Alias(
        "vllm:prefix_cache_queries",
        "counter",
        "Prompt tokens looked for in the prefix cache",
        (_CACHED, "halfmoon_worker_prompt_tokens_computed"),
    ),
    Alias("vllm:prefix_cache_hits", "counter", "Prompt tokens found in the prefix cache", (_CACHED,)),
    Alias("vllm:num_preemptions", "counter", "Preemptions", ("halfmoon_worker_preemptions",)),
)


class VllmNames(Collector):
    """Reads `own` metrics and shows their aliases; nothing before `model()` knows the model's name."""

    def __init__(self, own: Callable[[], Iterable[Metric]], model: Callable[[], str]) -> None:
        self._own = own
        self._model = model

    def collect(self) -> Iterable[Metric]:
        """For a registry."""
        model = self._model()
        families = {family.name: family for family in self._own()} if model else {}
        for alias in ALIASES:
            metric = alias.metric(families, model)
            if metric is not None:
                yield metric
