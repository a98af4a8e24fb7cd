"""One scrape of one engine, read by its adapter, before any difference is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass, field
from typing import TypeVar

from engine.remote.metrics.buckets import Buckets, from_samples
from engine.remote.metrics.metrics_page import Labels, Page
from engine.remote.metrics.numbers import Pool

T = TypeVar("T", bound=Sized)
Series = dict[Labels, float]
Keep = Callable[[Iterable[Labels]], set[Labels]]
"""Which of a name's series count; the others repeat them."""
NO_SUM = ("step_s", "hit_ratio")
"""Gauges that do not add up: of several ranks they are not known."""


@dataclass(slots=True)
class Scrape:
    """Series are kept apart by their labels: each counter restarts on its own."""

    model: str | None = None
    running: float | None = None
    waiting: float | None = None
    cap: float | None = None
    cap_max: float | None = None
    pools: tuple[Pool, ...] = ()
    counters: dict[str, Series] = field(default_factory=dict)
    finished: dict[str, Series] = field(default_factory=dict)
    histograms: dict[str, dict[Labels, Buckets]] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)
    """What fits nowhere else: output_tok_s, step_s, hit_ratio, rss_bytes, device_…_bytes."""
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


def read(page: Page, names: Names, keep: Keep = set) -> Scrape:
    """All that `names` says, of the series that `keep` keeps."""
    scrape = Scrape(
        model=label(page, "model_name", names.running),
        running=_counted(page, names.running, keep),
        waiting=_waiting(page, names, keep),
        cap=_counted(page, names.cap, keep),
        cap_max=_counted(page, names.cap_max, keep),
        pools=_pools(page, names, keep),
        notes=[],
    )
    for name, where in names.counters.items():
        _put(scrape.counters, name, _kept(page.values(*where), keep))
    for key, value in _kept(page.values(*names.finished), keep).items():
        scrape.finished.setdefault(dict(key).get(names.reason, "finished"), {})[key] = value
    for name, where in names.histograms.items():
        series = page.histograms(*where)
        kept = keep(series)
        _put(scrape.histograms, name, {key: series[key] for key in series if key in kept})
    for name, where in names.gauges.items():
        values = _kept(page.values(*where), keep)
        if len(values) == 1 or (values and name not in NO_SUM):
            scrape.gauges[name] = sum(values.values())
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


def label(page: Page, name: str, where: tuple[str, ...]) -> str | None:
    """The label's value where all series agree."""
    found = {dict(key).get(name) for key in page.values(*where)} - {None, ""}
    return found.pop() if len(found) == 1 else None


def count(page: Page, *names: str, keep: Keep = set) -> float | None:
    return _counted(page, names, keep)


def _counted(page: Page, where: tuple[str, ...], keep: Keep) -> float | None:
    """Added up; None when there is none, or one is no count."""
    if page.missing(*where):
        return None
    values = _kept(page.values(*where), keep)
    return sum(values.values()) if values and min(values.values()) >= 0 else None


def _waiting(page: Page, names: Names, keep: Keep) -> float | None:
    waiting = _counted(page, names.waiting, keep)
    also = _counted(page, names.also_waiting, keep)
    return waiting if waiting is None or also is None else waiting + also


def _pools(page: Page, names: Names, keep: Keep) -> tuple[Pool, ...]:
    """One a rank; a usage that is no share of 1 is not known."""
    usage = next((page.families[n].values for n in names.usage if n in page), {})
    kept = keep(usage)
    pools = []
    for key in (key for key in usage if key in kept):
        value: float | None = usage[key]
        if value is not None and not 0 <= value <= 1:
            if value > 1:
                page.broken.append(f"{names.usage[0]} is {value:g}, not a share of 1")
            value = None
        pools.append(
            Pool(
                rank(key),
                usage=value,
                pages=_beside(page, names.pages, key),
                page_tokens=_beside(page, names.page_tokens, key),
                free=_beside(page, names.free_pages, key),
            )
        )
    return tuple(pools)


def _beside(page: Page, where: tuple[str, ...], key: Labels) -> float | None:
    """The sample with the same labels."""
    value = page.values(*where).get(key)
    return value if value is not None and value >= 0 else None


def rank(key: Labels) -> str:
    """ "engine 1", by the exporter's labels."""
    labels = dict(key)
    for name in ("engine", "dp_rank", "tp_rank"):
        if labels.get(name):
            return f"{name.removesuffix('_rank')} {labels[name]}"
    return ""


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


def _kept(values: Series, keep: Keep) -> Series:
    kept = keep(values)
    return {key: value for key, value in values.items() if key in kept}


def _put(table: dict[str, T], name: str, series: T) -> None:
    if series:
        table[name] = series
