"""Times as people write them."""

from __future__ import annotations

import math
import re

from engine.errors import ConfigError

UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?\s*")


def seconds(text: str | float) -> float:
    """ "90s", "20m", "1.5h", "500ms", or a number of seconds. Raises ConfigError."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        value = float(text)
    else:
        match = _DURATION.fullmatch(str(text))
        value = float(match[1]) * UNITS[match[2] or "s"] if match else math.nan
    if not 0 < value < 1e7:
        raise ConfigError(f"{text!r} is not a time; write it like 90s, 20m or 1.5h")
    return value


def words(seconds: float) -> str:
    """In one unit, two digits or so: "80 s", "16 min", "1.6 h", "8 d"."""
    for unit, size, least in (("d", 86_400.0, 2), ("h", 3600.0, 1), ("min", 60.0, 2)):
        if seconds >= least * size:
            return _short(seconds / size, unit)
    return _short(seconds, "s")


def _short(value: float, unit: str) -> str:
    return f"{round(value, 1 if value < 10 else None):g} {unit}"
