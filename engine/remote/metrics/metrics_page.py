"""A metrics page: from bytes that nobody vouches for to samples by name.

Only sample lines of names that some adapter reads are parsed, and the labels of a series once,
not at every scrape: a fleet is polled on the machine that draws it. Types are not looked at (the
adapters know them), so every sample keeps the name it has on the page.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from prometheus_client.parser import text_string_to_metric_families

from engine.remote.errors import Unparsable
from engine.remote.metrics.buckets import Buckets, from_samples

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

Labels = tuple[tuple[str, str], ...]
"""Sorted; without `le`."""
Sample = tuple[str, Labels, str | None, float]
"""Name, labels, the bound of a bucket, value."""
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
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


@dataclass(slots=True)
class Page:
    names: set[str] = field(default_factory=set)
    """Of all that is some engine's, read or not: by them a page is recognised."""
    families: dict[str, Family] = field(default_factory=dict)
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

    def missing(self, *names: str) -> bool:
        """A sample of theirs is there and is no number."""
        found = next((self.families[name].values for name in names if name in self.families), {})
        return any(not math.isfinite(value) for value in found.values())

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
    wanted: Callable[[str], bool],
    known: Callable[[str], bool] = lambda name: False,
) -> Page:
    """The samples whose name is `wanted`, and the names that are `known`. Raises Unparsable, and
    nothing else.

    A page without any of them is empty, and was still a metrics page.
    """
    text = _text(body)
    lines = [line for line in map(str.strip, text.split("\n")) if line and line[0] != "#"]
    named = [(_name(line), line) for line in lines]
    chosen = [line for name, line in named if wanted(name)]
    page = Page({name for name in {name for name, _ in named} if wanted(name) or known(name)})
    for sample in _samples(chosen or lines[:PROBED]):
        if chosen:
            _add(page, sample)
    return page


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
    if b"\0" in body:
        raise Unparsable("binary data, no metrics page")
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unparsable(f"not UTF-8 at byte {error.start}: no metrics page") from None
    start = text.lstrip()[:64]
    if start.startswith("<"):
        raise Unparsable("an HTML page, no metrics page")
    if start.startswith(("{", "[")):
        raise Unparsable("JSON, no metrics page")
    if not text.endswith("\n"):
        lines = text.count("\n")
        raise Unparsable(f"the page is cut off in the middle of a line, after {lines} whole ones")
    return text


def _name(line: str) -> str:
    match = _NAME.match(line)
    return match[0] if match else ""


def _samples(lines: list[str]) -> list[Sample]:
    """Raises Unparsable naming the first line that is none."""
    if not lines:
        raise Unparsable("the page has no samples")
    if len(lines) > MAX_SAMPLES:
        raise Unparsable(f"the page has more than {MAX_SAMPLES:,} samples")
    longest = max(map(len, lines))
    if longest > MAX_LINE:
        raise Unparsable(f"a line of {longest:,} characters")
    read: list[Sample] = []
    end = time.monotonic() + PARSE_S
    for line in lines:
        if time.monotonic() > end:
            raise Unparsable(f"the page takes more than {PARSE_S:g} s to parse")
        try:
            read += _sample(line)
        except (ValueError, IndexError, KeyError, TypeError, OverflowError):
            shown = line[:60] + ("…" if len(line) > 60 else "")
            raise Unparsable(f"a line that is no sample: {shown!r}") from None
    return read


def _sample(line: str) -> list[Sample]:
    """Of a line in the usual form only the value is read again at each scrape."""
    usual = _USUAL.fullmatch(line)
    if usual is not None:
        return [(*_series(usual[1]), float(usual[2]))]
    return [(*_split(name, labels), value) for name, labels, value in _parsed(line)]


@lru_cache(maxsize=1 << 15)
def _series(text: str) -> tuple[str, Labels, str | None]:
    ((name, labels, _),) = _parsed(f"{text} 0")
    return _split(name, labels)


def _parsed(line: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for family in text_string_to_metric_families(line + "\n"):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def _split(name: str, labels: dict[str, str]) -> tuple[str, Labels, str | None]:
    bound = labels.pop("le", None) if name.endswith("_bucket") else None
    return name, tuple(sorted(labels.items())), bound


def _add(page: Page, sample: Sample) -> None:
    name, key, bound, value = sample
    family = page.families.setdefault(name, Family())
    number = _finite(value)
    if bound is None:
        family.values[key] = number
        if not math.isfinite(number):
            page.broken.append(f"{name} is {number}")
        return
    try:
        family.buckets.setdefault(key, {})[float(bound)] = number
    except ValueError:
        page.broken.append(f"{name}: a bucket up to {bound[:20]!r}")
