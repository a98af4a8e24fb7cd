"""/metrics: the engine's meters and latest Snapshot as Prometheus text.

Names and meanings are vLLM's where they coincide, so that dashboards made for it work; what
only this engine has is under `evewatch:`. Counters and buckets come from engine.meters, which
never resets. A gauge that is not known is left out, never 0.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from engine.observing.meters import Histogram, Meters
from engine.snapshot import Snapshot

if TYPE_CHECKING:
    from engine.core import Engine

HTTP_LABELS = ("handler", "method", "status")
SUCCESS = {"stop": "stop", "length": "length", "kv_capacity": "length", "cancelled": "abort",
           "timeout": "abort", "error": "error"}  # fmt: skip
"""vLLM's finished_reason. What was rejected never was a request to it."""

HISTOGRAMS = (
    ("vllm:time_to_first_token_seconds", "ttft", "From arrival to the first token."),
    ("vllm:inter_token_latency_seconds", "itl", "Between two tokens of a request."),
    ("vllm:request_time_per_output_token_seconds", "tpot", "Mean of a request's gaps."),
    ("vllm:e2e_request_latency_seconds", "e2e", "From arrival to the last token."),
    ("vllm:request_queue_time_seconds", "queue", "From the queue to the first computation."),
    ("vllm:request_prefill_time_seconds", "prefill", "From that to the first token."),
    ("vllm:request_decode_time_seconds", "decode", "From the first token to the last."),
    ("vllm:request_inference_time_seconds", "inference", "Prefill and decode."),
    ("vllm:request_prompt_tokens", "prompt_tokens", "Prompt tokens of a request."),
    ("vllm:request_generation_tokens", "output_tokens", "Output tokens of a request."),
    ("vllm:request_params_max_tokens", "max_tokens", "Output tokens that a request allowed."),
    ("vllm:request_num_preemptions", "preemptions", "How often a request was preempted."),
    ("vllm:iteration_tokens_total", "step_tokens", "Tokens computed in a step."),
)
PERCENTILES = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms")


class EngineMetrics(Collector):
    """Reads at scrape time; `snapshot` is set by whoever scrapes, just before."""

    def __init__(self, engine: Engine, model: str) -> None:
        self._engine = engine
        self.snapshot = Snapshot()
        self._labels = {"engine": "0", "model_name": model}

    def collect(self) -> Iterator[Metric]:
        meters = self._engine.telemetry.meters
        yield from self._counters(meters)
        yield from self._gauges(self.snapshot)
        for name, field, text in HISTOGRAMS:
            yield self._histogram(name, text, getattr(meters, field))

    # --- counters ---------------------------------------------------------------------

    def _counters(self, meters: Meters) -> Iterator[Metric]:
        totals, index = meters.totals, self._engine.pool.index
        plain = (
            ("vllm:prompt_tokens", "Prompt tokens of requests that were prefilled.",
             totals["prompt_tokens"]),
            ("vllm:generation_tokens", "Tokens that were generated.", totals["output_tokens"]),
            ("vllm:num_preemptions", "Preemptions.", totals["preemptions"]),
            ("vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache.",
             index.queried_tokens if index is not None else 0),
            ("vllm:prefix_cache_hits", "Of them, found.",
             index.hit_tokens if index is not None else 0),
            ("evewatch:steps", "Steps of the engine.", totals["steps"]),
            ("evewatch:requests", "Requests that reached the engine.", totals["requests"]),
        )  # fmt: skip
        for name, text, value in plain:
            yield self._family(CounterMetricFamily, name, text, {(): value})
        if self._engine.config.speculate != "off":
            yield from self._drafts(meters)
        ended: Counter[str] = Counter(dict.fromkeys(SUCCESS.values(), 0))
        for reason, count in dict(meters.finished).items():
            if reason in SUCCESS:
                ended[SUCCESS[reason]] += count
        yield self._family(
            CounterMetricFamily, "vllm:request_success", "Requests ended.",
            {(r,): n for r, n in ended.items()}, ("finished_reason",),
        )  # fmt: skip
        yield from self._objectives()
        yield self._family(
            CounterMetricFamily, "evewatch:requests_finished",
            "Requests ended, by this engine's own reasons.",
            {(r,): n for r, n in dict(meters.finished).items()}, ("reason",),
        )  # fmt: skip

    def _objectives(self) -> Iterator[Metric]:
        """How many requests met them, of how many: the limits are bounds of buckets."""
        found = self._engine.telemetry.objectives()
        for name, text, counts in (
            ("requests", "Requests that an objective is of.", [one.total for one in found]),
            ("met", "Of them, those that met it.", [one.good for one in found]),
        ):
            if found:
                values: dict[tuple[str, ...], float] = {
                    (o.name,): float(n) for o, n in zip(found, counts, strict=True)
                }
                yield self._family(
                    CounterMetricFamily, f"evewatch:objective_{name}", text, values, ("objective",)
                )

    def _drafts(self, meters: Meters) -> Iterator[Metric]:
        totals, most = meters.totals, self._engine.config.max_draft
        for name, text, key in (
            ("drafts", "Drafts that were computed.", "drafts"),
            ("draft_tokens", "Tokens in them.", "draft_tokens"),
            ("accepted_tokens", "Of them, those that were right.", "accepted_tokens"),
        ):
            family = f"vllm:spec_decode_num_{name}"
            yield self._family(CounterMetricFamily, family, text, {(): totals[key]})
        yield self._family(
            CounterMetricFamily, "vllm:spec_decode_num_accepted_tokens_per_pos",
            "The same by their place in the draft.",
            {(str(at),): meters.accepted_at[at] for at in range(most)}, ("position",),
        )  # fmt: skip

    # --- gauges -----------------------------------------------------------------------

    def _gauges(self, snapshot: Snapshot) -> Iterator[Metric]:
        queue, batch, kv, memory = snapshot.queue, snapshot.batch, snapshot.kv, snapshot.memory
        plain = (
            ("vllm:num_requests_running", "Requests in the batch.", batch.running),
            ("vllm:num_requests_waiting", "Requests in the queue.", queue.waiting),
            ("vllm:kv_cache_usage_perc", "Share of KV pages in use, 0 to 1.", kv.usage),
            ("evewatch:batch_cap", "Most requests that may run now.", batch.cap),
            ("evewatch:queue_oldest_seconds", "Wait of the oldest one.", queue.oldest_wait_s),
            ("evewatch:kv_pages", "Pages of the KV pool.", kv.total),
            ("evewatch:kv_pages_free", "Free pages.", kv.free),
            ("evewatch:kv_pages_open", "Pages that still fill.", kv.open),
            ("evewatch:kv_pages_sealed", "Full pages in use.", kv.sealed),
            ("evewatch:kv_pages_cached", "Full pages that only the prefix cache holds.", kv.cached),
            ("evewatch:kv_bytes_per_token", "Of all layers, sealed.", kv.bytes_per_token),
            ("evewatch:kv_sealed_ratio", "Sealed bytes over fp16's.", kv.sealed_ratio),
            ("evewatch:kv_effective_ratio", "The same as the pool stands.", kv.effective_ratio),
            ("evewatch:kv_fragmentation_ratio", "Empty token places in pages in use.",
             kv.fragmentation_ratio),
            ("evewatch:kv_saturation_ratio", "Values that a static scale clipped.",
             kv.saturation_ratio),
            ("evewatch:preemption_tax", "Recomputed over useful tokens.", batch.preemption_tax),
            ("evewatch:predicting", "Predicted lengths hold: admission goes by them.",
             batch.predicting),
            ("evewatch:length_coverage", "Share of outputs that were as long as expected.",
             batch.length_coverage),
            ("evewatch:step_milliseconds", "Mean of the last second.", batch.step_ms),
            ("evewatch:output_tokens_per_second", "Recent.", batch.output_tok_s),
            ("evewatch:resident_memory_bytes", "Of the process.", memory.rss_bytes),
            ("evewatch:paused", "Admission is paused.", snapshot.engine.paused),
            ("evewatch:alarm", "The watchdog's.", snapshot.engine.alarm is not None),
            ("evewatch:snapshot_age_seconds", "Of these gauges.", snapshot.source.age_s),
        )  # fmt: skip
        for name, text, value in plain:
            if value is not None and math.isfinite(value):
                yield self._family(GaugeMetricFamily, name, text, {(): float(value)})
        latency: dict[tuple[str, ...], float] = {
            (name.removesuffix("_ms"), quantile): value / 1e3
            for name in PERCENTILES
            for quantile, part in (("0.5", "p50"), ("0.9", "p90"), ("0.99", "p99"))
            if (value := getattr(getattr(snapshot.latency, name), part)) is not None
        }
        yield self._family(
            GaugeMetricFamily, "evewatch:latency_seconds",
            "Percentiles of the last minute, from raw samples.",
            latency, ("kind", "quantile"),
        )  # fmt: skip
        yield self._family(
            GaugeMetricFamily, "evewatch:held", "What requests hold, by class; all zero at idle.",
            {(name,): float(n) for name, n in snapshot.ledger.items()}, ("resource",),
        )  # fmt: skip
        if kv.total is not None:
            about = {
                "block_size": str(kv.page_tokens),
                "cache_dtype": str(kv.format),
                "num_gpu_blocks": str(kv.total),
                "kv_cache_size_tokens": str(kv.total * (kv.page_tokens or 0)),
                "kv_cache_memory_bytes": str(kv.pool_bytes),
                "enable_prefix_caching": str(self._engine.config.prefix_cache),
            }
            yield self._family(
                GaugeMetricFamily, "vllm:cache_config_info", "The KV cache.",
                {tuple(about.values()): 1.0},
                tuple(about),
            )  # fmt: skip

    def _family(
        self,
        kind: type[CounterMetricFamily] | type[GaugeMetricFamily],
        name: str,
        text: str,
        values: dict[tuple[str, ...], float],
        labels: tuple[str, ...] = (),
    ) -> Metric:
        """`values` by the values of `labels`, which come behind the engine's own."""
        family = kind(name, text, labels=[*self._labels, *labels])
        for own, value in values.items():
            family.add_metric([*self._labels.values(), *own], value)
        return family

    def _histogram(self, name: str, text: str, meter: Histogram) -> Metric:
        buckets, total = meter.read()
        family = HistogramMetricFamily(name, text, labels=list(self._labels))
        family.add_metric(
            list(self._labels.values()),
            [("+Inf" if math.isinf(e) else str(float(e)), n) for e, n in buckets],
            total,
        )
        return family


class HttpMetrics(Collector):
    """Requests by handler, method and status, and what is under way."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self.open = 0
        self.disconnects = 0

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily("http_requests", "HTTP requests.", labels=HTTP_LABELS)
        for key, count in dict(self.counts).items():
            requests.add_metric(list(key), count)
        yield requests
        yield GaugeMetricFamily("evewatch:http_requests_open", "Under way.", self.open)
        yield CounterMetricFamily(
            "evewatch:http_disconnects", "Clients that left before their answer.", self.disconnects
        )


class Metrics:
    """What /metrics says."""

    def __init__(self, engine: Engine, http: HttpMetrics) -> None:
        self._engine = engine
        self._one = threading.Lock()
        """Scrapes come on threads: two first ones would have every series twice, for good."""
        self._registry = CollectorRegistry()
        self._registry.register(http)
        for kind in (GCCollector, PlatformCollector, ProcessCollector):
            kind(registry=self._registry)
        self._collector: EngineMetrics | None = None

    def text(self, snapshot: Snapshot | None, model: str | None) -> bytes:
        """Without an engine that is up (no `snapshot`, no `model`): the process alone."""
        with self._one:
            if snapshot is not None and model is not None:
                if self._collector is None:
                    self._collector = EngineMetrics(self._engine, model)
                    self._registry.register(self._collector)
                self._collector.snapshot = snapshot
            return generate_latest(self._registry)
