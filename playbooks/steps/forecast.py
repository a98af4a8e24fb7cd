"""What `evewatch forecast run`, and a step of that kind, can be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from checklists.tomlfile import STRICT
from playbooks.steps.fields import Option, Reads, Time
from playbooks.steps.models import Seed


@dataclass(frozen=True)
class ForecastStep:
    __pydantic_config__ = STRICT
    history: Annotated[
        str | None,
        Option("The past: CSV of counts, Prometheus range JSON, a trace, or a recording"),
    ] = None
    calendar: Annotated[str | None, Option("TOML file of holidays and campaigns")] = None
    zone: Annotated[
        str | None, Option("Whose clocks, like Europe/Berlin, where no calendar says it; else UTC")
    ] = None
    start: Annotated[
        str | None, Option("When it begins, ISO 8601; the midnight after the history otherwise")
    ] = None
    days: Annotated[float, Gt(0), Le(62), Option("How many are looked at")] = 1.0
    plausible: Annotated[int, Ge(1), Le(100), Option("Plausible courses of them")] = 8
    lengths: Annotated[
        str | None,
        Reads("playbooks.load.mix:parse_mix"),
        Option("Of requests, instead of the history's: as of `load`"),
    ] = None
    cv: Annotated[
        float | None, Option("Burstiness of arrivals, instead of the history's; 1 is Poisson")
    ] = None
    scale: Annotated[float, Option("All rates, times this")] = 1.0
    fit: Annotated[str | None, Option("File of the engine's fit, instead of its own")] = None
    replicas: Annotated[int, Ge(1), Le(10_000), Option("Engines there are")] = 1
    router: Annotated[
        Literal["round_robin", "least_outstanding", "prefix_affinity"],
        Option("round_robin, least_outstanding or prefix_affinity"),
    ] = "least_outstanding"
    autoscale: Annotated[
        str | None,
        Reads("playbooks.forecast.asked:parse_scaling"),
        Option("LEAST-MOST:AIM[,START]: replicas, outstanding requests each, time to start one"),
    ] = None
    lose: Annotated[
        tuple[str, ...], Option("COUNT@TIME[+BACK]: replicas that are lost, like 1@20:00+30m")
    ] = ()
    what_if: Annotated[
        tuple[str, ...], Option("Beside it: replicas=6,max_batch=32, or any other setting")
    ] = ()
    slo: Annotated[
        str | None,
        Reads("playbooks.load.slo:parse_slo"),
        Option("Objective: ttft=500,tpot=50,e2e=5s, milliseconds"),
    ] = None
    share: Annotated[
        float, Gt(0), Le(1), Option("Share of the requests that are to meet the objective")
    ] = 0.99
    smallest: Annotated[
        bool,
        Option("Find the smallest fleet for every hour", flag="--smallest/--no-smallest"),
    ] = True
    window_s: Annotated[
        float | None,
        Gt(0),
        Le(3600),
        Time(),
        Option("Of each hour that is simulated, 1h: all; as the size allows", flag="--window"),
    ] = None
    seed: Seed = 0
