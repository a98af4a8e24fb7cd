"""Dates as English writes them, and as Chinese does: the one order of parts that no form tells."""

from __future__ import annotations

import re

_DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_FORM = rf"({'|'.join(_DAYS)})(?: (\d\d?) ({'|'.join(_MONTHS)})(?: (\d{{4}}))?)?( \d\d:\d\d)?"
_DATE = re.compile(_FORM)
LAST = re.compile(rf"([^:;,]*[A-Za-z]) ({_FORM})")
"""Behind a label: "saturates Thu 14:00"."""


def said(text: str) -> str | None:
    """ "Thu 24 Dec 00:00" as "12月24日周四 00:00"; None for what is no date with a weekday."""
    found = _DATE.fullmatch(text)
    if found is None or found[0] == found[1]:
        return None
    weekday, day, month, year, clock = found.groups()
    day_name = "一二三四五六日"[_DAYS.index(weekday)]
    date = f"{_MONTHS.index(month) + 1}月{int(day)}日" if month else ""
    return (f"{year}年" if year else "") + f"{date}周{day_name}{clock or ''}"
