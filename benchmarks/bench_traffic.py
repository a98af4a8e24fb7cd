"""A held-out week: the forecast beside the last value and the same hour last week.

    python -m benchmarks.bench_traffic [--seeds 20] [--weeks 4] [--out docs/forecast.md]

The weeks are made, in the shape that the Azure traces of May 2024 are described with (a working
day's peak and quiet weekends for code, a flatter day for chats), with a level that wanders, days
and hours that are off, growth or decline, and, in half of the cases, a campaign that the calendar
knows of. All but the last week are learnt from. Every forecast plans replicas hour by hour, each
with the smallest margin with which it serves the same share of the week's hours; what is compared
is the replica-hours.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from playbooks.forecast.calendar import Calendar, Special
from playbooks.forecast.expectation import make_outlook
from playbooks.forecast.history.history import HOUR_S, History
from playbooks.forecast.outlook import Outlook

BEGIN, END = "<!-- traffic: made by benchmarks/bench_traffic.py -->", "<!-- end of traffic -->"
MONDAY = datetime(2026, 11, 2, tzinfo=UTC)
DAY, WEEK = 24, 168
REPLICA = 5.0
"""Requests/s that one serves within its objective."""
SERVED = 0.99
"""Of the hours, in which the replicas are enough."""


@dataclass(frozen=True)
class Shape:
    name: str
    peak: float
    """Requests/s of a working day's busiest hour."""
    valley: float
    """The quietest hour over the busiest."""
    weekend: float
    """A weekend's day over a working day's."""


SHAPES = (Shape("chat", 60.0, 1 / 3.3, 0.85), Shape("code", 60.0, 1 / 34.6, 0.2))
CAMPAIGN = (2 * DAY + 18, 2 * DAY + 23, 1.8)
"""Hours of the week that is held out, and what they have over usual ones."""


def usual(shape: Shape) -> np.ndarray:
    """Requests/s of each hour of the week."""
    hours = np.arange(DAY)
    day = np.exp(2.2 * np.cos((hours - 15) * 2 * math.pi / DAY))
    day = shape.valley + (1 - shape.valley) * (day - day.min()) / (day.max() - day.min())
    sizes = np.where(np.arange(7) < 5, 1.0, shape.weekend) * np.array([0.95, 1, 1, 1, 0.9, 1, 1.05])
    return (shape.peak * sizes[:, None] * day[None, :]).ravel()


def weeks_of(shape: Shape, weeks: int, seed: int, campaign: bool) -> np.ndarray:
    """Counts by the hour."""
    rng = np.random.default_rng([seed, len(shape.name)])
    days, hours = weeks * 7, weeks * WEEK
    growth = rng.normal(0.01, 0.015) * np.arange(hours) / WEEK
    level = np.cumsum(rng.normal(0, 0.02, days)) + rng.normal(0, 0.05, days)
    wander, off = np.zeros(hours), 0.0
    for i in range(hours):
        wander[i] = off = 0.7 * off + rng.normal(0, 0.04)
    rates = np.tile(usual(shape), weeks) * np.exp(growth + np.repeat(level, DAY) + wander)
    if campaign:
        begin, end, factor = CAMPAIGN
        rates[hours - WEEK + begin : hours - WEEK + end] *= factor
    return rng.poisson(rates * HOUR_S).astype(float)


@dataclass
class Result:
    error: float
    coverage: float | None
    replica_hours: int
    margin: float


def replica_hours(said: np.ndarray, came: np.ndarray) -> tuple[int, float]:
    """With the smallest margin that serves enough hours, and that margin."""
    need = np.ceil(came / REPLICA)
    for margin in np.geomspace(0.5, 500.0, 1000):
        planned = np.maximum(np.ceil(margin * said / REPLICA), 1)
        if np.mean(planned >= need) >= SERVED:
            return int(planned.sum()), float(margin)
    raise ValueError("no margin is enough")


def held_out(shape: Shape, weeks: int, seed: int, campaign: bool) -> dict[str, Result]:
    counts = weeks_of(shape, weeks + 1, seed, campaign)
    past = History(shape.name, MONDAY, HOUR_S, tuple(counts[:-WEEK].tolist()))
    came = counts[-WEEK:] / HOUR_S
    outlook = make_outlook(past, calendar(weeks) if campaign else None, days=7)
    low, high = outlook.interval()
    found = {}
    said_by = forecasts(outlook) | {
        "the hour before, as an autoscaler sees it": counts[-WEEK - 1 : -1] / HOUR_S
    }
    for name, said in said_by.items():
        planned, margin = replica_hours(said, came)
        error = float(np.abs(said - came).sum() / came.sum())
        inside = float(np.mean((low <= came) & (came <= high))) if name == "forecast" else None
        found[name] = Result(error, inside, planned, margin)
    return found


def forecasts(outlook: Outlook) -> dict[str, np.ndarray]:
    return {
        "forecast": outlook.rates,
        "last value": np.full(WEEK, outlook.last_value),
        "same hour last week": outlook.last_week,
    }


def calendar(weeks: int) -> Calendar:
    begin, end, factor = CAMPAIGN
    monday = (MONDAY + timedelta(weeks=weeks)).timestamp()
    offer = Special(
        "campaign", "offer", monday + begin * HOUR_S, monday + end * HOUR_S, factor, None, None, 0
    )
    return Calendar(specials=(offer,))


def table(seeds: int, weeks: int) -> list[str]:
    """Rows of Markdown: means over the seeds."""
    lines = [
        "| traffic | forecast | error (WAPE) | in its 80 % interval | replica-hours | margin |",
        "|---|---|---|---|---|---|",
    ]
    for shape in SHAPES:
        for campaign in (False, True):
            runs = [held_out(shape, weeks, seed, campaign) for seed in range(seeds)]
            what = f"{shape.name}, with a campaign" if campaign else shape.name
            for name in runs[0]:
                of = [run[name] for run in runs]
                covered = [one.coverage for one in of if one.coverage is not None]
                share = f"{np.mean(covered):.0%}" if covered else "–"
                lines.append(
                    f"| {what} | {name} | {np.mean([o.error for o in of]):.1%} | {share} | "
                    f"{np.mean([o.replica_hours for o in of]):,.0f} | "
                    f"× {np.mean([o.margin for o in of]):.2f} |"
                )
    return lines


def write(path: Path, lines: list[str]) -> None:
    """Between the marks of a page."""
    before, _, rest = path.read_text("utf-8").partition(BEGIN)
    path.write_text(
        f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{rest.partition(END)[2]}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--weeks", type=int, default=4, help="of history")
    parser.add_argument("--out", type=Path, help="a page with marks, like docs/forecast.md")
    given = parser.parse_args()
    lines = table(given.seeds, given.weeks)
    print("\n".join(lines))
    if given.out is not None:
        write(given.out, lines)


if __name__ == "__main__":
    main()
