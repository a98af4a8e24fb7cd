"""From what a command or a playbook says to a Question: scenarios, losses, the rule of scaling."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from engine.config import EngineConfig, parse_field
from engine.errors import ConfigError
from engine.simulated.routers import ROUTERS
from engine.simulated.scaling import Loss, Scaling
from playbooks.forecast.asked_traffic import TrafficAsked
from playbooks.forecast.clocks import by_the_clock
from playbooks.forecast.course import Scenario
from playbooks.forecast.fit_file import Fit, load, own_path, url_path
from playbooks.forecast.outlook import Outlook
from playbooks.forecast.run import Question
from playbooks.load.slo import Slo, parse_slo
from playbooks.steps.durations import seconds
from playbooks.steps.forecast import ForecastStep

SCALING_FORM = "LEAST-MOST:AIM[,START], like 2-20:24,90s"
LOSS_FORM = "COUNT@TIME[+BACK], like 1@20:00 or 2@2026-12-24T20:00+30m"


def question_of(step: ForecastStep, outlook: Outlook, fit: Fit, config: EngineConfig) -> Question:
    """`fit`: of `config`'s engine; other scenarios take theirs from where it is kept. Raises
    ConfigError."""
    days = outlook.plausible(step.plausible, step.seed)
    return Question(
        days,
        scenarios_of(step, fit, config, days[0].start, days[0].seconds),
        Slo() if step.slo is None else parse_slo(step.slo),
        step.share,
        step.smallest,
        step.window_s,
        step.seed,
    )


def traffic_of(step: ForecastStep) -> TrafficAsked:
    """What the step says of the traffic. Raises ConfigError where it says nothing."""
    if step.history is None:
        raise ConfigError(
            "--history: expected a file of the past: a CSV of counts, Prometheus' query_range, a "
            "trace or a recording"
        )
    calendar = None if step.calendar is None else Path(step.calendar)
    return TrafficAsked(
        Path(step.history), calendar, step.zone, step.start, step.days, step.lengths, step.cv,
        step.scale,
    )  # fmt: skip


def at_url(step: ForecastStep, url: str) -> ForecastStep:
    """Of the engine that serves there: with its fit, unless the step names another. `url`: as it
    is shown, without secrets. Raises ConfigError where it has none."""
    if step.fit is not None:
        return step
    path = url_path(url)
    if not path.is_file():
        raise ConfigError(
            f"there is no fit of {url}: make one with `evewatch forecast fit --target {url}`"
        )
    return replace(step, fit=str(path))


def own_fit(config: EngineConfig) -> Fit:
    """The one that is kept of these settings' engine, measured here. Raises ConfigError."""
    path = own_path(config)
    if not path.is_file():
        raise ConfigError(
            f"there is no fit of {config.model} with {config.kv_format} pages: make one with "
            "`evewatch forecast fit` and the same flags"
        )
    fit = load(path)
    fit.refuse_elsewhere()
    return fit


def scenarios_of(
    step: ForecastStep, fit: Fit, config: EngineConfig, start: datetime, length_s: float
) -> list[Scenario]:
    """What there is, and each --what-if. Raises ConfigError."""
    fit.refuse(config)
    losses = tuple(parse_loss(text, start, length_s) for text in step.lose)
    scaling = None if step.autoscale is None else parse_scaling(step.autoscale)
    replicas = step.replicas if scaling is None else scaling.within(step.replicas)
    first = Scenario("as it is", fit, config, replicas, step.router, scaling, losses)
    return [first, *(_variant(first, text) for text in step.what_if)]


def _variant(first: Scenario, text: str) -> Scenario:
    """`text`: settings, replicas, router or autoscale, with commas between."""
    changes: dict[str, Any] = {}
    fleet: dict[str, Any] = {}
    for part in re.split(r",(?=\s*[a-z_]+\s*=)", text):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise ConfigError(f"--what-if {text!r}: expected setting=value, like replicas=6")
        if name == "replicas":
            fleet["replicas"] = _count(text, value)
        elif name == "router":
            fleet["router"] = _router(text, value)
        elif name == "autoscale":
            fleet["scaling"] = None if value == "off" else parse_scaling(value)
        else:
            changes[name] = parse_field(name, value)
    config = first.config.with_(**changes) if changes else first.config
    fit = first.fit if first.fit.fits(config) else own_fit(config)
    found = replace(first, name=text, fit=fit, config=config, **fleet)
    if found.scaling is not None:
        found = replace(found, replicas=found.scaling.within(found.replicas))
    return found


def _count(text: str, value: str) -> int:
    if not value.isdecimal() or not 1 <= int(value) <= 10_000:
        raise ConfigError(f"--what-if {text!r}: expected a number of replicas, got {value!r}")
    return int(value)


def _router(text: str, value: str) -> str:
    if value not in ROUTERS:
        raise ConfigError(
            f"--what-if {text!r}: router {value!r} is not one of {', '.join(ROUTERS)}"
        )
    return value


def parse_scaling(text: str) -> Scaling:
    """ "2-20:24,90s": 2 to 20 replicas, 24 outstanding requests each, 90 s to start one."""
    match = re.fullmatch(r"(\d+)-(\d+):(\d+(?:\.\d+)?)(?:,(\S+))?", text.strip())
    if match is None or float(match[3]) <= 0:
        raise ConfigError(f"autoscale: {text!r}: expected {SCALING_FORM}")
    rule = Scaling(int(match[1]), int(match[2]), float(match[3]))
    return rule if match[4] is None else replace(rule, start_s=seconds(match[4]))


def parse_loss(text: str, start: datetime, length_s: float) -> Loss:
    """ "1@20:00": one replica is gone at the first 20:00 of the period."""
    match = re.fullmatch(r"(\d+)@([^+]+)(?:\+(\S+))?", text.strip())
    if match is None or int(match[1]) < 1:
        raise ConfigError(f"--lose {text!r}: expected {LOSS_FORM}")
    at_s = _moment(text, match[2], start).timestamp() - start.timestamp()
    if not 0 <= at_s < length_s:
        end = datetime.fromtimestamp(start.timestamp() + length_s, start.tzinfo)
        raise ConfigError(
            f"--lose {text!r}: lies outside the period, {start:%F %H:%M} to {end:%F %H:%M}"
        )
    return Loss(int(match[1]), at_s, None if match[3] is None else seconds(match[3]))


def _moment(text: str, told: str, start: datetime) -> datetime:
    zone = start.tzinfo
    assert zone is not None, "a period's start has a time zone"
    clock = re.fullmatch(r"(\d\d?):(\d\d)", told)
    try:
        if clock is None:
            return by_the_clock(told, zone)
        first = start.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0)
        return first if first >= start else first + timedelta(days=1)
    except ValueError as error:
        raise ConfigError(f"--lose {text!r}: {error}") from None
