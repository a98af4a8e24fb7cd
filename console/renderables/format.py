"""Numbers as the operator reads them: short, with their unit, "–" for what is not known.

Every number on the screen passes through here, so a missing gauge (None) and a broken one
(NaN, infinity) look the same everywhere and never look like zero.
"""

from __future__ import annotations

import math
import time

from engine.snapshot import Percentiles
from playbooks.reports.text import clean as clean
from playbooks.steps.durations import words as in_words

MISSING = "–"
ENOUGH = {"p50": 1, "p90": 10, "p99": 100}
"""Samples from which there is such a percentile."""

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")


def known(value: float | None) -> bool:
    """False for None, NaN and infinities."""
    return value is not None and math.isfinite(value)


def count(value: float | None, unit: str = "") -> str:
    """1204 -> "1,204"; with a unit "1,204 tok"."""
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{value:,.0f} {unit}".rstrip()


def decimal(value: float | None, unit: str = "") -> str:
    """Three digits or so: "0.53", "5.2", "262", "1,204"."""
    if value is None or not math.isfinite(value):
        return MISSING
    if abs(value) >= 10_000:
        return f"{value / 1e3:,.1f}k {unit}".rstrip()
    places = 0 if abs(value) >= 100 else 1 if abs(value) >= 1 or value == 0 else 2
    return f"{value:,.{places}f} {unit}".rstrip()


def rate(value: float | None, unit: str = "") -> str:
    """ "5.2/s", "262 tok/s"."""
    return f"{decimal(value, unit)}/s" if known(value) else MISSING


def percent(ratio: float | None) -> str:
    """0.6 -> "60 %", 0.011 -> "1.1 %"."""
    if ratio is None or not math.isfinite(ratio):
        return MISSING
    value = ratio * 100
    if 0 < value < 0.05:
        return "<0.1 %"
    return f"{value:.1f} %" if 0 < abs(value) < 9.95 else f"{value:.0f} %"


def duration(seconds: float | None) -> str:
    """One unit, two or three digits: "0.4 ms", "41 ms", "2.3 s", "12 min", "3.4 h"."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    size = abs(seconds)
    if size < 0.00995:
        return f"{seconds * 1e3:.1f} ms" if seconds else "0 ms"
    if size < 0.9995:
        return f"{seconds * 1e3:.0f} ms"
    if size < 99.5:
        return f"{seconds:.1f} s" if size < 9.95 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if size < 5970 else f"{seconds / 3600:.1f} h"


def span(seconds: float | None) -> str:
    """How long something lasts, from seconds to days: "80 s", "16 min", "1.6 h", "8 d"."""
    return in_words(seconds) if seconds is not None and known(seconds) else MISSING


def age(seconds: float | None) -> str:
    """How old numbers are: tenths of a second, so that a live one is seen to tick."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    return f"{seconds:.1f} s" if seconds < 9.95 else duration(seconds)


def times(value: float | None) -> str:
    """How many times as much: × 1.32."""
    return f"× {value:.2f}" if value is not None and known(value) else MISSING


def millis(value: float | None) -> str:
    """Milliseconds in, `duration` out."""
    return duration(None if value is None else value / 1e3)


def bounded(percentiles: Percentiles, name: str) -> str:
    """p50, p90 or p99 as `millis`; "< 300 ms" for one that a histogram's first bucket holds,
    "> 40 s" for one beyond its last."""
    value: float | None = getattr(percentiles, name)
    low, high = percentiles.floor, percentiles.ceiling
    if value is None and high is not None and percentiles.n >= ENOUGH[name]:
        return f"> {millis(high)}"
    if value is not None and low is not None and value <= low:
        return f"< {millis(low)}"
    return millis(value)


def quantiles(percentiles: Percentiles) -> dict[str, str]:
    """p50, p90 and p99 by name, as `bounded`."""
    return {name: bounded(percentiles, name) for name in ENOUGH}


def size(value: float | None) -> str:
    """Bytes, in powers of 1024: "180 MiB"."""
    if value is None or not math.isfinite(value):
        return MISSING
    step = 0
    while abs(value) >= 1000 and step < len(_SIZES) - 1:
        value, step = value / 1024, step + 1
    places = 1 if step and abs(value) < 99.5 else 0
    return f"{value:.{places}f} {_SIZES[step]}"


def uptime(seconds: float | None) -> str:
    """ "00:12:41", from a day on "3 d 04:12:41"."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return MISSING
    days, rest = divmod(int(seconds), 86_400)
    clock_part = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days} d {clock_part}" if days else clock_part


def clock(unix: float | None) -> str:
    """Local time of day."""
    if unix is None or not math.isfinite(unix):
        return MISSING
    try:
        return time.strftime("%H:%M:%S", time.localtime(unix))
    except (OverflowError, ValueError, OSError):
        return MISSING
