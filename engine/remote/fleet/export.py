"""The merged numbers of a fleet for Prometheus, on a loopback port.

Counters and histograms are what was counted since we watch, over restarts of single replicas: a
sum of replicas whose parts restart would look like a counter that fell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from engine.errors import ConfigError
from engine.remote.fleet.fleet import Fleet, Group
from engine.remote.metrics import view
from engine.remote.metrics.buckets import Buckets, merged
from engine.remote.metrics.numbers import Numbers
from engine.snapshot import Snapshot, SourceState

PREFIX = "evewatch:fleet_"
# not shown
GAUGES: tuple[tuple[str, str, Callable[[Snapshot], float | None]], ...] = (
    ("requests_running", "Requests that run.", lambda s: s.batch.running),
    ("requests_waiting", "Requests that wait.", lambda s: s.queue.waiting),
    ("kv_cache_usage_ratio", "KV cache in use, 0-1, weighted by size.", lambda s: s.kv.usage),
    ("arrivals_per_second", "Requests that came, recent mean.", lambda s: s.queue.arrivals_per_s),
    ("output_tokens_per_second", "Recent mean.", lambda s: s.batch.output_tok_s),
    ("prefix_cache_hit_ratio", "Prompt tokens found in it, 0-1.", lambda s: s.kv.prefix_hit_ratio),
)
# not shown
COUNTERS = {
    "output_tokens": "Tokens generated.",
    "prompt_tokens": "Prompt tokens processed.",
    "preemptions": "Requests preempted.",
}
# not shown
HISTOGRAMS = {
    "ttft": ("time_to_first_token_seconds", "Time to first token."),
    "tpot": ("time_per_output_token_seconds", "Time per output token."),
    "e2e": ("e2e_request_latency_seconds", "From arrival to the last token."),
    "queue": ("request_queue_time_seconds", "Time in the queue."),
}


class FleetCollector(Collector):
    """What a number is not known of is not exported."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def describe(self) -> Sequence[Metric]:
        return []  # so that registering asks no engine

    def collect(self) -> Iterator[Metric]:
        groups = self._fleet.groups()
        yield from self._targets(groups)
        for name, text, read in GAUGES:
            gauge = GaugeMetricFamily(PREFIX + name, text, labels=["group"])
            for group in groups:
                value = read(group.merged) if group.live else None
                if value is not None:
                    gauge.add_metric([group.name], value)
            yield gauge
        for name, text in COUNTERS.items():
            counter = CounterMetricFamily(PREFIX + name, text, labels=["group"])
            for group in groups:
                counted = [numbers.totals.get(name) for numbers in self._counted(group)]
                known = [value for value in counted if value is not None]
                if known and len(known) == len(counted):
                    counter.add_metric([group.name], sum(known))
            yield counter
        yield from self._objectives(groups)
        for name, (metric, text) in HISTOGRAMS.items():
            family = HistogramMetricFamily(PREFIX + metric, text, labels=["group"])
            for group in groups:
                several = (numbers.observed.get(name) for numbers in self._counted(group))
                total = merged(one for one in several if one is not None)
                if total is not None and total.sum is not None:
                    family.add_metric([group.name], _rows(total), total.sum)
            yield family

    def _objectives(self, groups: Sequence[Group]) -> Iterator[Metric]:
        """Where a limit lies within a bucket, met are those that kept to it for certain."""
        labels = ["group", "objective"]
        requests = CounterMetricFamily(
            PREFIX + "objective_requests", "Requests that an objective is of.", labels=labels
        )
        met = CounterMetricFamily(
            PREFIX + "objective_met", "Of them, those that met it.", labels=labels
        )
        for group in groups:
            if several := self._counted(group):
                total = reduce(Numbers.merge, several)
                for one in view.objectives(total, self._fleet.objectives):
                    requests.add_metric([group.name, one.name], one.total)
                    met.add_metric([group.name, one.name], one.good)
        if self._fleet.objectives:
            yield from (requests, met)

    def _targets(self, groups: Sequence[Group]) -> Iterator[Metric]:
        labels = ["group", "target", "engine", "state"]
        up = GaugeMetricFamily("evewatch:target_up", "1 while its numbers are live.", labels=labels)
        age = GaugeMetricFamily("evewatch:target_age_seconds", "Of its numbers.", labels=labels[:2])
        odd = GaugeMetricFamily("evewatch:target_odd", "1 for the odd one.", labels=labels[:2])
        for group in groups:
            for name, snapshot in group.snapshots.items():
                source = snapshot.source
                live = source.state is SourceState.LIVE
                up.add_metric([group.name, name, source.engine, source.state.value], float(live))
                age.add_metric([group.name, name], source.age_s)
                stands_out = bool(group.odd) and group.odd[0].replica == name
                odd.add_metric([group.name, name], float(stands_out))
        yield from (up, age, odd)

    def _counted(self, group: Group) -> list[Numbers]:
        """Of all that were ever live: what a dead replica has counted stays counted."""
        several = (self._fleet.engines[name].counted for name in group.snapshots)
        return [numbers for numbers in several if numbers is not None]


def serve(fleet: Fleet, port: int) -> Callable[[], None]:
    """Answer /metrics on 127.0.0.1; the result ends it. Raises ConfigError when it cannot."""
    if not 0 <= port < 1 << 16:
        raise ConfigError(f"--prometheus-port {port}: expected a port up to 65535")
    registry = CollectorRegistry()
    registry.register(FleetCollector(fleet))
    try:
        server, thread = start_http_server(port, "127.0.0.1", registry)
    except OSError as error:
        raise ConfigError(f"--prometheus-port {port}: {error.strerror}") from error

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join(timeout=2.0)

    end.port = server.server_address[1]  # type: ignore[attr-defined]
    return end


def _rows(buckets: Buckets) -> list[tuple[str, float]]:
    return [
        ("+Inf" if bound == float("inf") else repr(bound), count)
        for bound, count in zip(buckets.bounds, buckets.counts, strict=True)
    ]
