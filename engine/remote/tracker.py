"""From scrapes to rates and windows: what grew between one scrape and the next.

A counter that fell started again from zero, and all that it shows came since: no rate is ever
negative. Each series restarts on its own; a process that started anew restarts all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from engine.remote.metrics.buckets import Buckets, merged
from engine.remote.metrics.numbers import Numbers, added, joined
from engine.remote.metrics.owners import Labels, Series
from engine.remote.metrics.scrape import Scrape

RATE_S = 10.0
"""Rates are means over so many seconds."""
LATENCY_S = 60.0
"""Percentiles are of what was observed in so many seconds."""
RATES = ("output_tok_s", "step_s")
"""Gauges of how fast it goes: see `_forget_old_gauges`."""


class Tracker:
    """Of one target. `push` every scrape, with monotonic seconds."""

    def __init__(self) -> None:
        self._last: Scrape | None = None
        self._past: deque[tuple[float, int, Numbers]] = deque()
        """When, after how many restarts, and what was known then: of LATENCY_S, and one older."""
        self._window: dict[str, Buckets] = {}
        self._gauges: dict[str, float] = {}
        self.restarts = 0
        self.progress = 0.0
        """When a counter last grew."""

    def push(self, scrape: Scrape, now: float) -> Numbers:
        numbers = self._counted(scrape, now)
        self._past.append((now, self.restarts, numbers))
        while len(self._past) > 1 and self._past[1][0] <= now - LATENCY_S:
            self._past.popleft()
        self._last = scrape
        self._forget_old_gauges(scrape, now)
        return replace(numbers, rates=self._rates(now), buckets=self._latencies())

    def _counted(self, scrape: Scrape, now: float) -> Numbers:
        """The gauges of now, and what was counted up to now, over restarts."""
        numbers = Numbers(
            models=frozenset([scrape.model] if scrape.model else []),
            running=scrape.running,
            waiting=scrape.waiting,
            cap=scrape.cap,
            cap_max=scrape.cap_max,
            pools=tuple(sorted(scrape.pools, key=repr)),
            totals=_totals(scrape.counters),
            finished=_totals(scrape.finished),
            observed=_by_name(scrape.histograms),
        )
        last = self._last
        if last is None:
            self.progress = now
            return numbers
        fresh = _restarted(last, scrape)
        self.restarts += bool(fresh)
        before = self._past[-1][2]
        grown = _growth(scrape.counters, last.counters, fresh)
        ended = _growth(scrape.finished, last.finished, fresh)
        if any(grown.values()) or any(ended.values()):
            self.progress = now
        observed = _observed(scrape.histograms, last.histograms, fresh)
        _remember(last, scrape)
        return replace(
            numbers,
            totals=added(before.totals, grown),
            finished=added(before.finished, ended),
            observed=joined(before.observed, observed),
        )

    def _since(self, moment: float) -> tuple[float, int, Numbers]:
        """The newest that is not after `moment`, else the oldest."""
        return next((old for old in reversed(self._past) if old[0] <= moment), self._past[0])

    def _rates(self, now: float) -> dict[str, float]:
        then, restarts, old = self._since(now - RATE_S)
        _, _, new = self._past[-1]
        seconds = now - then
        if seconds <= 0:
            return {}
        rates = {
            n: (new.totals[n] - old.totals[n]) / seconds for n in new.totals if n in old.totals
        }
        if not (new.finished and old.finished):
            return rates
        ended = sum(new.finished.values()) - sum(old.finished.values())
        rates["finished"] = ended / seconds
        inside, before = _in_flight(new), _in_flight(old)
        if inside is None or before is None or restarts != self.restarts or "arrivals" in rates:
            return rates
        return rates | {"arrivals": max(0.0, ended + inside - before) / seconds}

    def _latencies(self) -> dict[str, Buckets]:
        """Of the last minute; where nothing was observed in it, what was known before."""
        _, _, new = self._past[-1]
        _, _, old = self._past[0]
        for name, total in new.observed.items():
            recent = total.since(old.observed[name]) if name in old.observed else total
            if new is old or recent.count > 0:
                self._window[name] = total if new is old else recent
        return dict(self._window)

    def _forget_old_gauges(self, scrape: Scrape, now: float) -> None:
        """A gauge of a rate keeps its last value when the work ends. With nothing running, or
        when neither it nor a counter has moved since the last look, it is no rate of now."""
        last = self._gauges
        self._gauges = {name: scrape.gauges[name] for name in RATES if name in scrape.gauges}
        for name, value in self._gauges.items():
            if scrape.running == 0 or (last.get(name) == value and self.progress < now):
                del scrape.gauges[name]


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


def _growth(
    now: Mapping[str, Series], then: Mapping[str, Series], fresh: set[Labels]
) -> dict[str, float]:
    """By how much counters grew; what is new, fell or started again counts from zero."""
    return {name: _grown(series, then.get(name, {}), fresh) for name, series in now.items()}


def _grown(series: Series, before: Series, fresh: set[Labels]) -> float:
    total = 0.0
    for key, value in series.items():
        then = 0.0 if _covered(key, fresh) else before.get(key, 0.0)
        total += max(0.0, value - then if value >= then else value)
    return total


def _observed(
    now: Mapping[str, Mapping[Labels, Buckets]],
    then: Mapping[str, Mapping[Labels, Buckets]],
    fresh: set[Labels],
) -> dict[str, Buckets]:
    """What histograms gained, by name."""
    gained = {}
    for name, several in now.items():
        before = then.get(name, {})
        known = {key for key in several if key in before and not _covered(key, fresh)}
        new = merged(
            one.since(before[key]) if key in known else one for key, one in several.items()
        )
        if new is not None and new.count > 0:
            gained[name] = new
    return gained


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


def _in_flight(numbers: Numbers) -> float | None:
    if numbers.running is None or numbers.waiting is None:
        return None
    return numbers.running + numbers.waiting
