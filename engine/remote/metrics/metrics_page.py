"""A metrics page: from bytes that nobody vouches for to samples by name.

Only sample lines of names that some adapter reads are parsed, and the labels of a series once,
not at every scrape: a fleet is polled on the machine that draws it. Types are not looked at: the
adapters know them. A sample is kept by the name that its engine gave it, however a collector on
the way has respelt it. A line that is no sample is named and hides no other one.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from prometheus_client.parser import text_string_to_metric_families

from engine.remote.errors import Unparsable
from engine.remote.metrics.buckets import Buckets, from_samples
from engine.remote.metrics.owners import Labels, Series, model_of, owned

MAX_BODY = 16 << 20
"""Bytes of a page that are read at most."""
MAX_LINE = 16 << 10
LARGEST = 1e300
PARSE_S = 5.0
"""A page that takes longer to parse is no page of an engine."""
MAX_SAMPLES = 100_000
PROBED = 200
"""Lines parsed of a page that has nothing for us, to tell another program's from rubbish."""
COMMON = ("process_start_time_seconds", "process_resident_memory_bytes")

Sample = tuple[str, Labels, str | None, float, float | None]
"""Name, labels, the bound of a bucket, value, and when it was taken (Unix s) if the page says."""
MOST_BAD = 0.5
"""Share of lines that are no samples from which on it is no metrics page."""
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_QUOTED = re.compile(r'\{\s*"([^"\\]+)"\s*[,}]')
"""As Prometheus 3 writes names of any letters: {"vllm.num_requests_running",model="m"} 1."""
_USUAL = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]*(?:\{[^{}]*\})?) ([+-]?(?:[0-9][0-9.]*(?:[eE][+-]?[0-9]+)?|Inf)|NaN)"
)
"""A sample without a time and without braces in its labels."""


@dataclass(slots=True)
class Family:
    """All samples of one name, by their labels. Of a sample written twice the last one counts."""

    values: dict[Labels, float] = field(default_factory=dict)
    buckets: dict[Labels, dict[float, float]] = field(default_factory=dict)
    """For a name ending in _bucket."""
    times: dict[Labels, float] = field(default_factory=dict)
    """Of the samples that the page dates."""


@dataclass(slots=True)
class Page:
    names: set[str] = field(default_factory=set)
    """Of all that is some engine's, read or not: by them a page is recognised."""
    families: dict[str, Family] = field(default_factory=dict)
    spelt: dict[str, str] = field(default_factory=dict)
    """Names read here, and how the page spells those that it spells otherwise."""
    model: str | None = None
    """Whose gauges count, where the page has several models'."""
    broken: list[str] = field(default_factory=list)
    """What single samples had wrong with them, each with its name."""

    def __contains__(self, name: str) -> bool:
        return name in self.families

    def values(self, *names: str) -> dict[Labels, float]:
        """Finite samples of the first of these names that the page has."""
        for name in names:
            if name in self.families:
                found = self.families[name].values
                return {key: value for key, value in found.items() if math.isfinite(value)}
        return {}

    def gauge(self, *names: str) -> Series:
        """One value an owner, of the first of these names that the page has; NaN for one that is
        there and is no number."""
        found = next((self.families[name] for name in names if name in self.families), Family())
        mine = {k: v for k, v in found.values.items() if model_of(k) in (None, self.model)}
        return owned(mine or found.values, found.times)

    def models(self, *names: str) -> list[str]:
        """Those that have a series of their own, sorted."""
        keys = next((self.families[name].values for name in names if name in self.families), {})
        return sorted({model for model in map(model_of, keys) if model})

    def of_model(self, model: str | None, several: Sequence[str]) -> Page:
        """The page without the other ones of `several` models."""
        if len(several) < 2:
            return replace(self, model=model)
        page = self.only(lambda key: (of := model_of(key)) == model or of not in several)
        return replace(page, model=model)

    def only(self, keep: Callable[[Labels], bool]) -> Page:
        """The same page without the series that are not kept."""
        families = {}
        for name, one in self.families.items():
            values = {key: value for key, value in one.values.items() if keep(key)}
            buckets = {key: bounds for key, bounds in one.buckets.items() if keep(key)}
            if values or buckets:
                families[name] = Family(values, buckets, one.times)
        return replace(self, families=families)

    def histograms(self, *names: str) -> dict[Labels, Buckets]:
        """Series of the first of these names that the page has; broken ones are left out."""
        for name in names:
            if f"{name}_bucket" in self.families:
                return dict(self._series(name))
        return {}

    def _series(self, name: str) -> Iterator[tuple[Labels, Buckets]]:
        sums = self.families.get(f"{name}_sum", Family()).values
        counts = self.families.get(f"{name}_count", Family()).values
        for key, bounds in self.families[f"{name}_bucket"].buckets.items():
            built = from_samples(bounds, sums.get(key), counts.get(key))
            if built is None:
                self.broken.append(f"{name}: its buckets do not fit together")
            else:
                yield key, built


def parse(
    body: bytes,
    canonical: Callable[[str], str | None],
    known: Callable[[str], bool] = lambda name: False,
) -> Page:
    """The samples that some adapter reads, and the names that are `known`. Raises Unparsable, and
    nothing else.

    `canonical` gives the name by which a sample is read, None for one that nobody reads. A page
    without any of them is empty, and was still a metrics page.
    """
    text = _text(body)
    lines = [line for line in map(str.strip, text.split("\n")) if line and line[0] != "#"]
    named = [(_name(line), line) for line in lines]
    names = dict.fromkeys(name for name, _ in named)
    meant = _meant(names, canonical)
    chosen = [line for name, line in named if name in meant]
    page = Page({name for name in names if known(name)} | set(meant.values()))
    page.spelt = {name: own for own, name in meant.items() if own != name}
    for sample in _samples(chosen or lines[:PROBED], page.broken):
        if chosen:
            _add(page, meant[sample[0]], sample)
    return page


def _meant(names: Iterable[str], canonical: Callable[[str], str | None]) -> dict[str, str]:
    """What the page's names are read as. One spelling of each: the engine's own, else the first."""
    chosen: dict[str, str] = {}
    for own in names:
        name = canonical(own)
        if name is not None and (name not in chosen or own == name):
            chosen[name] = own
    return {own: name for name, own in chosen.items()}


def _finite(value: float) -> float:
    """NaN for what no sum can hold; infinities stay what they are."""
    try:
        number = float(value)  # the parser reads whole numbers of any length as int
    except OverflowError:
        return math.nan
    return number if abs(number) < LARGEST or math.isinf(number) else math.nan


def _text(body: bytes) -> str:
    if len(body) > MAX_BODY:
        raise Unparsable(f"the page has more than {MAX_BODY >> 20} MiB")
    if not body.strip():
        raise Unparsable("the page is empty")
    if body.startswith(b"\x1f\x8b"):
        raise Unparsable("compressed data that is not said to be compressed (gzip)")
    if b"\0" in body:
        raise Unparsable("binary data, no metrics page")
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unparsable(f"not UTF-8 at byte {error.start}: no metrics page") from None
    start = text.lstrip()[:64]
    if start.startswith("<"):
        raise Unparsable("an HTML page, no metrics page")
    if start.startswith(("{", "[")) and not _QUOTED.match(start):
        raise Unparsable("JSON, no metrics page")
    if not text.endswith(("\n", "\n# EOF")):
        lines = text.count("\n")
        raise Unparsable(f"the page is cut off in the middle of a line, after {lines} whole ones")
    return text


def _name(line: str) -> str:
    match = _NAME.match(line) or _QUOTED.match(line)
    return match[match.lastindex or 0] if match else ""


def _samples(lines: list[str], broken: list[str]) -> list[Sample]:
    """What is no sample goes to `broken`; raises Unparsable when most of it is none."""
    if not lines:
        raise Unparsable("the page has no samples")
    if len(lines) > MAX_SAMPLES:
        raise Unparsable(f"the page has more than {MAX_SAMPLES:,} samples")
    read: list[Sample] = []
    bad: list[str] = []
    end = time.monotonic() + PARSE_S
    for line in lines:
        if time.monotonic() > end:
            raise Unparsable(f"the page takes more than {PARSE_S:g} s to parse")
        try:
            read += _sample(line)
        except (ValueError, IndexError, KeyError, TypeError, OverflowError):
            bad.append(line)
    if bad:
        cut = bad[0][:60] + ("…" if len(bad[0]) > 60 else "")
        what = f"a line of {len(bad[0]):,} characters" if len(bad[0]) > MAX_LINE else repr(cut)
        if len(bad) >= MOST_BAD * len(lines):
            raise Unparsable(f"a line that is no sample: {what}")
        broken.append(f"{len(bad)} of {len(lines)} lines are no samples: {what}")
    return read


def _sample(line: str) -> list[Sample]:
    """Of a line in the usual form only the value is read again at each scrape."""
    if len(line) > MAX_LINE:
        raise ValueError("too long")
    usual = _USUAL.fullmatch(line)
    if usual is not None:
        return [(*_series(usual[1]), float(usual[2]), None)]
    return [(*_split(name, labels), value, at) for name, labels, value, at in _parsed(line)]


@lru_cache(maxsize=1 << 15)
def _series(text: str) -> tuple[str, Labels, str | None]:
    ((name, labels, *_),) = _parsed(f"{text} 0")
    return _split(name, labels)


def _parsed(line: str) -> Iterator[tuple[str, dict[str, str], float, float | None]]:
    for family in text_string_to_metric_families(line + "\n"):
        for sample in family.samples:
            when = None if sample.timestamp is None else float(sample.timestamp)
            yield sample.name, sample.labels, sample.value, when


def _split(name: str, labels: dict[str, str]) -> tuple[str, Labels, str | None]:
    bound = labels.pop("le", None) if name.endswith("_bucket") else None
    return name, tuple(sorted(labels.items())), bound


def _add(page: Page, name: str, sample: Sample) -> None:
    _, key, bound, value, when = sample
    family = page.families.setdefault(name, Family())
    number = _finite(value)
    if bound is None:
        family.values[key] = number
        if when is not None:
            family.times[key] = when
        if not math.isfinite(number):
            page.broken.append(f"{name} is {number}")
        return
    try:
        family.buckets.setdefault(key, {})[float(bound)] = number
    except ValueError:
        page.broken.append(f"{name}: a bucket up to {bound[:20]!r}")
