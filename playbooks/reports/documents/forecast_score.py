"""The document of `forecast score`: what a forecast was worth."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from playbooks.reports.document import (
    Chart,
    Column,
    Document,
    Line,
    Table,
    change,
    percent,
    plain,
    whole,
)

TICKS = 8
"""Labels under the chart at most."""


def score_document(report: dict[str, Any]) -> Document:
    hours = report["hours"]
    methods = Table(
        "Off by",
        [Column("forecast"), Column("hours", whole, True), Column("of all requests", percent, True),
         Column("too many", change, True), Column("busiest hour", change, True)],
        [[m["name"], m["hours"], m["error"], m["bias"], m["peak_error"]]
         for m in report["methods"]],
    )  # fmt: skip
    by_hour = Table(
        "Hours, requests/s",
        [Column("hour"), Column("expected", plain, True), Column("low", plain, True),
         Column("high", plain, True), Column("came", plain, True), Column("off", change, True),
         Column("last week", plain, True), Column("special")],
        [[_clock(h), h["expected"], h["low"], h["high"], h["came"], h["error"], h["last_week"],
          ", ".join(h["special"])] for h in hours],
    )  # fmt: skip
    latencies = Table(
        "Latencies, median of the hours",
        [Column("metric"), Column("hours", whole, True), Column("off by", percent, True),
         Column("too high", change, True), Column("in the interval", percent, True)],
        [[row["metric"], row["hours"], row["error"], row["bias"], row["inside"]]
         for row in report["latencies"]],
    )  # fmt: skip
    return Document(
        "What the forecast was worth",
        [
            f"of {report['start']}, beside {report['file']}: {report['hours_scored']} of "
            f"{report['hours_forecast']} hours",
            f"{percent(report['coverage'])} of the hours lay in their {report['level']:.0%} "
            "interval",
        ],
        tables=[methods, *([latencies] if latencies.rows else []), by_hour],
        full=by_hour,
        charts=[_chart(hours)],
        sentences=report["assumptions"],
        warnings=report["warnings"],
        rows=hours,
    )


def _clock(hour: dict[str, Any]) -> str:
    return f"{datetime.fromisoformat(hour['start']):%a %d %b %H:%M}"


def _chart(hours: list[dict[str, Any]]) -> Chart:
    def column(key: str) -> list[float | None]:
        return [hour[key] for hour in hours]

    return Chart(
        "requests/s", "hour", list(range(len(hours))), linear=True,
        ticks=[(i, _clock(hours[i])) for i in range(0, len(hours), -(-len(hours) // TICKS))],
        lines=[Line("came", column("came")),
               Line("expected", column("expected"), column("low"), column("high")),
               Line("same hour last week", column("last_week"))],
    )  # fmt: skip
