"""One scrape of one engine, read by its adapter, before any difference is taken."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sized
from dataclasses import dataclass, field
from typing import TypeVar

from engine.remote.metrics.buckets import Buckets, from_samples
from engine.remote.metrics.metrics_page import Page
from engine.remote.metrics.numbers import Pool
from engine.remote.metrics.owners import Labels, Series, title, unrepeated

T = TypeVar("T", bound=Sized)
V = TypeVar("V")
NO_SUM = ("step_s", "hit_ratio", "draft_ratio", "draft_length")
"""Gauges that do not add up: of several ranks they are not known."""


@dataclass(slots=True)
class Scrape:
    """Series are kept apart by their labels: each counter restarts on its own."""

    model: str | None = None
    models: tuple[str, ...] = ()
    """All on the page; this is of `model`."""
    running: float | None = None
    waiting: float | None = None
    cap: float | None = None
    cap_max: float | None = None
    pools: tuple[Pool, ...] = ()
    counters: dict[str, Series] = field(default_factory=dict)
    finished: dict[str, Series] = field(default_factory=dict)
    histograms: dict[str, dict[Labels, Buckets]] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)
    """What fits nowhere else: output_tok_s, step_s, rss_bytes, device_…_bytes, and those of
    NO_SUM."""
    started: float | None = None
    """Unix seconds; a change is a restart."""
    notes: list[str] = field(default_factory=list)
    """What was wrong with single fields."""


@dataclass(frozen=True)
class Names:
    """Where an engine's numbers are: for each the names it has had, the newest first."""

    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    also_waiting: tuple[str, ...] = ()
    """Added to it where the engine has it."""
    cap: tuple[str, ...] = ()
    cap_max: tuple[str, ...] = ()
    usage: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()
    page_tokens: tuple[str, ...] = ()
    free_pages: tuple[str, ...] = ()
    finished: tuple[str, ...] = ()
    """A counter with the reason as a label."""
    reason: str = "finished_reason"
    counters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    histograms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    gauges: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def samples(self) -> set[str]:
        """The names of all samples meant."""
        plain = (
            self.running, self.waiting, self.also_waiting, self.cap, self.cap_max, self.usage,
            self.pages, self.page_tokens, self.free_pages, self.finished,
            *self.counters.values(), *self.gauges.values(),
        )  # fmt: skip
        parts = ("_bucket", "_sum", "_count")
        several = {h + part for where in self.histograms.values() for h in where for part in parts}
        return several.union(*plain)


def read(page: Page, names: Names) -> Scrape:
    """All that `names` says of a page, of the page's model if it has several."""
    waiting, also = _total(page, names.waiting), _total(page, names.also_waiting)
    scrape = Scrape(
        model=page.model,
        running=_total(page, names.running),
        waiting=waiting if waiting is None or also is None else waiting + also,
        cap=_total(page, names.cap),
        cap_max=_total(page, names.cap_max),
        pools=_pools(page, names),
    )
    for name, where in names.counters.items():
        _put(scrape.counters, name, _once(page.values(*where)))
    for key, value in _once(page.values(*names.finished)).items():
        scrape.finished.setdefault(dict(key).get(names.reason, "finished"), {})[key] = value
    for name, where in names.histograms.items():
        _put(scrape.histograms, name, _once(page.histograms(*where)))
    for name, where in names.gauges.items():
        several = list(page.gauge(*where).values())
        if len(several) == 1 or (several and name not in NO_SUM):
            total = sum(several)
            scrape.gauges |= {name: total} if math.isfinite(total) else {}
    read_process(page, scrape)
    scrape.notes = list(dict.fromkeys(page.broken))
    return scrape


def read_process(page: Page, scrape: Scrape) -> None:
    """What prometheus clients add of their process, when it is one process."""
    started = list(page.values("process_start_time_seconds").values())
    resident = list(page.values("process_resident_memory_bytes").values())
    if len(started) == 1:
        scrape.started = started[0]
    if len(resident) == 1 and resident[0] > 0:
        scrape.gauges["rss_bytes"] = resident[0]


def _total(page: Page, where: tuple[str, ...]) -> float | None:
    """Of all owners; None when there is none, or one of them has no count."""
    values = page.gauge(*where).values()
    return sum(values) if values and all(v >= 0 and v < math.inf for v in values) else None


def _pools(page: Page, names: Names) -> tuple[Pool, ...]:
    """One an owner; a usage that is no share of 1 is not known."""
    pools = []
    for owner, usage in page.gauge(*names.usage).items():
        if usage > 1:
            page.broken.append(f"{names.usage[0]} is {usage:g}, not a share of 1")
        pools.append(
            Pool(
                title(owner),
                usage=usage if 0 <= usage <= 1 else None,
                pages=_beside(page, names.pages, owner),
                page_tokens=_beside(page, names.page_tokens, owner),
                free=_beside(page, names.free_pages, owner),
                running=_beside(page, names.running, owner),
                waiting=_beside(page, names.waiting, owner),
                owner=owner,
            )
        )
    return tuple(pools)


def _beside(page: Page, where: tuple[str, ...], owner: Labels) -> float | None:
    """The same owner's number."""
    value = page.gauge(*where).get(owner)
    return value if value is not None and 0 <= value < math.inf else None


def add_mean(scrape: Scrape, name: str, seconds: Series, count: Series, scale: float = 1.0) -> None:
    """Where only a sum and a count are exported: a histogram of one bucket, which has a mean.

    `scale` makes seconds of the sum's unit.
    """
    series = {
        key: built
        for key, total in seconds.items()
        if key in count and (built := from_samples({}, total * scale, count[key])) is not None
    }
    _put(scrape.histograms, name, series)


def _once(series: dict[Labels, V]) -> dict[Labels, V]:
    kept = unrepeated(series)
    return {key: value for key, value in series.items() if key in kept}


def _put(table: dict[str, T], name: str, series: T) -> None:
    if series:
        table[name] = series
