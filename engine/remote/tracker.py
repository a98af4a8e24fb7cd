"""From scrapes to rates and windows: what grew between one scrape and the next.

A counter that fell started again from zero, and all that it shows came since: no rate is ever
negative. Each series restarts on its own; a process that started anew restarts all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.remote.metrics.buckets import Buckets, merged
from engine.remote.metrics.numbers import Numbers
from engine.remote.metrics.owners import Labels, Series
from engine.remote.metrics.scrape import Scrape

RATE_S = 10.0
"""Rates are means over so many seconds."""
RATES = ("output_tok_s", "step_s")
"""Gauges of how fast it goes: see `_forget_old_gauges`."""
LATENCY_S = 60.0
"""Percentiles are of what was observed in so many seconds."""


@dataclass(slots=True)
class Step:
    """What one scrape added to the one before."""

    time: float
    seconds: float
    counters: dict[str, float] = field(default_factory=dict)
    finished: dict[str, float] = field(default_factory=dict)
    buckets: dict[str, Buckets] = field(default_factory=dict)
    in_flight: float | None = None
    """Requests in the engine: by how many there are more."""


class Tracker:
    """Of one target. `push` every scrape, with monotonic seconds."""

    def __init__(self) -> None:
        self._last: Scrape | None = None
        self._time = 0.0
        self._steps: deque[Step] = deque()
        self._window: dict[str, Buckets] = {}
        self._gauges: dict[str, float] = {}
        self.restarts = 0
        self.progress = 0.0
        """When a counter last grew."""
        self.counters: dict[str, float] = {}
        """All that was ever counted, over restarts; the same of histograms."""
        self.buckets: dict[str, Buckets] = {}

    def push(self, scrape: Scrape, now: float) -> Numbers:
        if self._last is None:
            self.progress = now
            self._window = _by_name(scrape.histograms)
            self._carry(_totals(scrape.counters), self._window)
        else:
            self._add(self._step(self._last, scrape, now), now)
            _remember(self._last, scrape)
        self._forget_old_gauges(scrape, now)
        self._last, self._time = scrape, now
        return self._numbers(scrape, now)

    def _step(self, last: Scrape, scrape: Scrape, now: float) -> Step:
        fresh = _restarted(last, scrape)
        self.restarts += bool(fresh)
        step = Step(now, max(1e-9, now - self._time))
        for name, series in scrape.counters.items():
            step.counters[name] = _grown(series, last.counters.get(name, {}), fresh)
        for name, series in scrape.finished.items():
            step.finished[name] = _grown(series, last.finished.get(name, {}), fresh)
        for name, several in scrape.histograms.items():
            before = last.histograms.get(name, {})
            known = {key for key in several if key in before and not _covered(key, fresh)}
            new = merged(
                one.since(before[key]) if key in known else one for key, one in several.items()
            )
            if new is not None and new.count > 0:
                step.buckets[name] = new
        now_in, then_in = _in_flight(scrape), _in_flight(last)
        if now_in is not None and then_in is not None and not fresh:
            step.in_flight = now_in - then_in
        return step

    def _add(self, step: Step, now: float) -> None:
        self._steps.append(step)
        while self._steps and self._steps[0].time <= now - LATENCY_S:
            self._steps.popleft()
        self._carry(step.counters, step.buckets)
        if any(step.counters.values()) or any(step.finished.values()):
            self.progress = now

    def _forget_old_gauges(self, scrape: Scrape, now: float) -> None:
        """A gauge of a rate keeps its last value when the work ends. With nothing running, or
        when neither it nor a counter has moved since the last look, it is no rate of now."""
        last = self._gauges
        self._gauges = {name: scrape.gauges[name] for name in RATES if name in scrape.gauges}
        for name, value in self._gauges.items():
            if scrape.running == 0 or (last.get(name) == value and self.progress < now):
                del scrape.gauges[name]

    def _carry(self, counters: Mapping[str, float], buckets: Mapping[str, Buckets]) -> None:
        for name, grown in counters.items():
            self.counters[name] = self.counters.get(name, 0.0) + grown
        for name, new in buckets.items():
            self.buckets[name] = self.buckets[name].merge(new) if name in self.buckets else new

    def _numbers(self, scrape: Scrape, now: float) -> Numbers:
        return Numbers(
            models=frozenset([scrape.model] if scrape.model else []),
            running=scrape.running,
            waiting=scrape.waiting,
            cap=scrape.cap,
            cap_max=scrape.cap_max,
            pools=tuple(sorted(scrape.pools, key=repr)),
            totals=_totals(scrape.counters),
            finished=_totals(scrape.finished),
            rates=self._rates(now),
            buckets=self._latencies(),
        )

    def _rates(self, now: float) -> dict[str, float]:
        recent = [step for step in self._steps if step.time > now - RATE_S]
        seconds = sum(step.seconds for step in recent)
        if not seconds:
            return {}
        names = set.intersection(*(set(step.counters) for step in recent))
        rates = {name: sum(step.counters[name] for step in recent) / seconds for name in names}
        if all(step.finished for step in recent):
            ended = sum(sum(step.finished.values()) for step in recent)
            rates["finished"] = ended / seconds
            changes = [step.in_flight for step in recent if step.in_flight is not None]
            if len(changes) == len(recent) and "arrivals" not in rates:
                rates["arrivals"] = max(0.0, ended + sum(changes)) / seconds
        return rates

    def _latencies(self) -> dict[str, Buckets]:
        """Of the last minute; where nothing was observed in it, what was known before."""
        for name in {name for step in self._steps for name in step.buckets}:
            recent = merged(step.buckets[name] for step in self._steps if name in step.buckets)
            if recent is not None:
                self._window[name] = recent
        return dict(self._window)


def _restarted(last: Scrape, scrape: Scrape) -> set[Labels]:
    """Labels of the series that started again: the empty ones stand for all."""
    moved = abs((scrape.started or 0.0) - (last.started or 0.0)) > 1.0
    if moved and None not in (last.started, scrape.started):
        return {()}
    return {
        key
        for name, series in scrape.counters.items()
        for key, value in series.items()
        if value < last.counters.get(name, {}).get(key, 0.0)
    }


def _covered(key: Labels, fresh: set[Labels]) -> bool:
    """A series with these labels belongs to one that started again."""
    return any(set(labels) <= set(key) for labels in fresh)


def _grown(series: Series, before: Series, fresh: set[Labels]) -> float:
    """By how much a counter grew; what is new, fell or started again counts from zero."""
    total = 0.0
    for key, value in series.items():
        then = 0.0 if _covered(key, fresh) else before.get(key, 0.0)
        total += max(0.0, value - then if value >= then else value)
    return total


def _remember(last: Scrape, scrape: Scrape) -> None:
    """Series that a page left out once are no new ones when they are back."""
    for then, now in ((last.counters, scrape.counters), (last.finished, scrape.finished)):
        for name, series in then.items():
            now[name] = {**series, **now.get(name, {})}
    for name, several in last.histograms.items():
        scrape.histograms[name] = {**several, **scrape.histograms.get(name, {})}


def _totals(counters: Mapping[str, Series]) -> dict[str, float]:
    return {name: sum(series.values()) for name, series in counters.items()}


def _by_name(histograms: Mapping[str, Mapping[Labels, Buckets]]) -> dict[str, Buckets]:
    built = {name: merged(several.values()) for name, several in histograms.items()}
    return {name: one for name, one in built.items() if one is not None}


def _in_flight(scrape: Scrape) -> float | None:
    if scrape.running is None or scrape.waiting is None:
        return None
    return scrape.running + scrape.waiting
