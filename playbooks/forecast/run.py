"""A forecast: every scenario on every plausible day, and the smallest fleet; on all cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

import numpy as np
from scipy.stats import norm

from engine.simulated.routers import ROUTERS
from playbooks.forecast.course import Scenario, World, hours_of, run_whole
from playbooks.forecast.figures import CourseFigures, figures_of
from playbooks.forecast.pace import Pace, pace_of
from playbooks.forecast.smallest import Search
from playbooks.forecast.traffic import Traffic
from playbooks.forecast.typical import Sampling, run_typical
from playbooks.forecast.workers import GIVING_WAY, Job, cores, results
from playbooks.load.slo import Slo
from playbooks.steps import Progress

REQUESTS = 400_000
"""Of all days together, that are simulated one by one; of more, windows stand for the rest."""
PART = 4
"""Replicas of a larger fleet that are simulated, in windows."""
LEAST_WARM_S, MOST_WARM_S = 20.0, 300.0
LONG = 2.0
"""Times its warm-up, a window at least."""
ALONE = 20_000
"""Requests that are sooner simulated here than given to other processes."""
BATCH = 6
"""Hours that one search for the smallest fleet goes through, one after the other."""


@dataclass(frozen=True)
class Question:
    """What is asked."""

    days: Sequence[Traffic]
    """Plausible courses of the same period."""
    scenarios: Sequence[Scenario]
    """The first is what there is; the others are what could be."""
    slo: Slo = field(default_factory=Slo)
    target: float = 0.99
    """Share of the requests that are to meet it."""
    smallest: bool = True
    window_s: float | None = None
    """Seconds of each hour that are simulated; 3600: all. None: as many as the size allows."""
    seed: int = 0

    @property
    def start(self) -> datetime:
        return self.days[0].start

    @property
    def seconds(self) -> float:
        return self.days[0].seconds

    @property
    def offered(self) -> float:
        """About so many requests come, of all days together."""
        hours = range(hours_of(self.seconds))
        whole = sum(day.rate(hour * 3600.0) for day in self.days for hour in hours)
        return whole * min(self.seconds, 3600.0)

    def worlds(self) -> list[World]:
        """Each day with engines of another speed: as far off the fit as runs are."""
        count = len(self.days)
        places = (np.random.default_rng([self.seed, 1]).permutation(count) + 0.5) / count
        speeds = np.exp(self.scenarios[0].fit.drift * norm.ppf(places)).tolist()
        return [World(day, speeds[i], self.seed * 1000 + i) for i, day in enumerate(self.days)]


@dataclass(frozen=True)
class Found:
    """What came of it."""

    paces: list[Pace]
    """Of each scenario's replicas."""
    samplings: list[Sampling | None]
    days: list[list[CourseFigures]]
    """Of each scenario, of each day."""
    smallest: list[int | None] | None
    """Replicas for each hour; None: not asked for."""


def run_forecast(
    question: Question,
    progress: Progress = lambda *_: None,
    workers: int | None = None,
    beside: bool = False,
) -> Found:
    """Raises ConfigError. `workers`: processes; 1: this one alone; None: one a core where there is
    much to do. `beside`: an engine serves here, which others give way to."""
    for scenario in question.scenarios:
        scenario.fit.refuse(scenario.config)
    worlds = question.worlds()
    paces = [pace_of(s, question.days[0]) for s in question.scenarios]
    samplings = [sampling_of(question, s, paces[i]) for i, s in enumerate(question.scenarios)]
    asked = _Asked(question, worlds, paces, samplings)
    courses = [partial(_course, s, w) for s in range(len(paces)) for w in range(len(worlds))]
    hours = range(0, hours_of(question.seconds), BATCH) if question.smallest else ()
    searches = [partial(_search, hour) for hour in hours]
    jobs: list[Job] = [*courses, *searches]
    processes = _processes(question, workers, beside)
    done = iter(results(asked, jobs, progress, processes, GIVING_WAY if beside else 0))
    days = [[next(done) for _ in worlds] for _ in paces]
    found = [hour for hours in done for hour in hours] if question.smallest else None
    return Found(paces, samplings, days, found)


def sampling_of(question: Question, scenario: Scenario, pace: Pace) -> Sampling | None:
    """How much of it is simulated; None: all."""
    asked, offered = question.window_s, question.offered
    if offered <= REQUESTS if asked is None else asked >= 3600:
        return None
    warm = min(max(pace.full / pace.able, LEAST_WARM_S), MOST_WARM_S)
    if asked is None:
        asked = max(3600 * REQUESTS / (offered * _part(scenario)) * LONG / (LONG + 1), LONG * warm)
    count = max(int(min(asked / LONG, 3600 / (LONG + 1)) / warm), 1)
    return Sampling(PART, min(asked, 3600 - count * warm) / count, warm, count)


def _part(scenario: Scenario) -> float:
    """Of the requests, that the simulated replicas have."""
    whole = ROUTERS[scenario.router]().keeps_prefixes
    return 1.0 if whole else min(PART / scenario.replicas, 1.0)


def _processes(question: Question, workers: int | None, beside: bool) -> int:
    """Beside this one; an engine that serves here has this one, and a core, for itself."""
    if workers is not None:
        return 0 if workers == 1 else workers
    if beside:
        return max(cores() - 1, 1)
    return cores() if cores() > 1 and question.offered >= ALONE else 0


@dataclass(frozen=True)
class _Asked:
    """What every process is given once."""

    question: Question
    worlds: list[World]
    paces: list[Pace]
    samplings: list[Sampling | None]


def _course(scenario: int, world: int, asked: _Asked) -> CourseFigures:
    question, sampling = asked.question, asked.samplings[scenario]
    given = question.scenarios[scenario], asked.worlds[world]
    if sampling is None:
        course = run_whole(*given, asked.paces[scenario].able)
    else:
        course = run_typical(
            *given, asked.paces[scenario], sampling, (world + 0.5) / len(asked.worlds)
        )
    return figures_of(course, question.slo)


def _search(first: int, asked: _Asked) -> list[int | None]:
    question = asked.question
    search = Search(
        question.scenarios[0], asked.worlds, asked.paces[0], question.slo, question.target
    )
    last = min(first + BATCH, hours_of(question.seconds))
    return [search.smallest(hour) for hour in range(first, last)]
