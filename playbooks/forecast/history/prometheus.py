"""The answer of Prometheus' /api/v1/query_range as a history: a rate of requests, or a counter.

A series with its name still on it (…_total, …_count) is a counter: its differences are the
requests. Any other is taken as requests/s, as rate() gives them. Several series are added up.
"""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

from engine.errors import ConfigError
from playbooks.forecast.history.history import History
from playbooks.forecast.history.slots import Slots, put_together

COUNTERS = ("_total", "_count")
Series = dict[float, float]
"""Unix seconds to values; what is not known is not in it."""


def is_answer(head: bytes) -> bool:
    """Whether a file that begins so is one."""
    return head.startswith(b"{") and b'"resultType"' in head[:4096]


def read_range(path: Path) -> History:
    """Raises ConfigError for an answer that holds no such series."""
    found = _result(path)
    counter = all(_name(entry).endswith(COUNTERS) for entry in found)
    notes = []
    if counter:
        notes.append("its series are counters: the requests are their differences")
    else:
        notes.append("its values are taken as requests/s")
    if len(found) > 1:
        notes.append(f"its {len(found)} series are added up")
    series = [_values(path, entry) for entry in found]
    whole = _sum([_increases(one) for one in series] if counter else series)
    moments = sorted(whole)
    widths = [b - a for a, b in pairwise(moments)]
    width = min(widths, default=0.0)
    # A value tells of the time before it.
    begins = [moment - width for moment in moments]
    return put_together(
        Slots(str(path), begins, [whole[moment] for moment in moments], not counter), notes
    )


def _result(path: Path) -> list[dict[str, Any]]:
    try:
        answer = json.loads(path.read_text("utf-8-sig"))
        status, data = answer["status"], answer.get("data", {})
        if status != "success":
            raise ConfigError(
                f"history {path}: Prometheus answered {status}: {answer.get('error')}"
            )
        kind, found = data["resultType"], data["result"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"history {path}: is no answer of /api/v1/query_range ({error!r})"
        ) from error
    if kind != "matrix":
        raise ConfigError(
            f"history {path}: holds a {kind}, one moment; ask /api/v1/query_range for a time"
        )
    if not found:
        raise ConfigError(f"history {path}: is empty: the query found no series")
    return list(found)


def _name(entry: Any) -> str:
    metric = entry.get("metric", {}) if isinstance(entry, dict) else {}
    return str(metric.get("__name__", "")) if isinstance(metric, dict) else ""


def _values(path: Path, entry: Any) -> Series:
    found: Series = {}
    try:
        for moment, text in entry["values"]:
            value = float(text)
            if value < 0:
                raise ConfigError(
                    f"history {path}: {value:g} at {float(moment):.0f}: requests are 0 or more"
                )
            if math.isfinite(value):
                found[float(moment)] = value
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"history {path}: a series has no values ({error!r})") from error
    return found


def _increases(series: Series) -> Series:
    """Of a counter; one that fell began again at 0. Over a gap nothing is known."""
    moments = sorted(series)
    width = min((b - a for a, b in pairwise(moments)), default=0.0)
    found: Series = {}
    for before, after in pairwise(moments):
        if after - before <= width * 1.5:
            grown = series[after] - series[before]
            found[after] = grown if grown >= 0 else series[after]
    return found


def _sum(series: list[Series]) -> Series:
    whole: Series = {}
    for one in series:
        for moment, value in one.items():
            whole[moment] = whole.get(moment, 0.0) + value
    return whole
