"""How well a part stands for the whole, and how long a week of twenty replicas takes.

    python -m benchmarks.bench_fleet days [--hours 24] [--replicas 4] [--out docs/forecast.md]
    python -m benchmarks.bench_fleet week [--replicas 20] [--out docs/forecast.md]

`days`: each is simulated twice: every request of every replica, and windows of each hour, as
`evewatch forecast run` takes them for large fleets (of one of eight days that it has the time for).
`week`: in the shape of Azure's chat traffic, forecast from four weeks before: eight plausible
courses with a replica lost at the busiest hour, and the smallest fleet of every hour, on all cores.
The fit is that of `--fit`, else one like the embedded engine's on two cores. `days` takes an hour
and a half of CPU time, `week` a quarter of one; `--hours 6 --window 314`, as much of each hour as
of a whole day, is a first look. A machine that others use changes only the times.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.bench_traffic import DAY, MONDAY, SHAPES, WEEK, usual, weeks_of
from engine.config import EngineConfig
from engine.scheduling.plan import ModelFacts
from engine.simulated.cost import kv_facts
from engine.simulated.fitted import CostCoefficients
from engine.simulated.scaling import Loss, Scaling
from playbooks.forecast import answers
from playbooks.forecast.bursts import GammaGaps
from playbooks.forecast.course import Scenario, World, run_whole
from playbooks.forecast.expectation import make_outlook
from playbooks.forecast.figures import CourseFigures, Saturation, figures_of
from playbooks.forecast.fit_file import Fingerprint, Fit, load
from playbooks.forecast.history.history import HOUR_S, History
from playbooks.forecast.outlook import Outlook
from playbooks.forecast.pace import pace_of
from playbooks.forecast.report import report_of
from playbooks.forecast.run import Question, run_forecast, sampling_of
from playbooks.forecast.sizes import PresetSizes
from playbooks.forecast.traffic import SlotTraffic
from playbooks.forecast.typical import run_typical
from playbooks.load.mix import parse_mix
from playbooks.load.slo import Slo

MARKS = {
    part: (f"<!-- {part}: made by benchmarks/bench_fleet.py -->", f"<!-- end of {part} -->")
    for part in ("days", "week")
}
LENGTHS = "chat*0.3"
PLACES = 8
SLO = Slo(ttft=5000.0, tpot=200.0)
TARGET = 0.99
WEEK_PEAK = 0.85
"""Of the fleet's capacity, the busiest hour's expected load."""


@dataclass(frozen=True)
class Case:
    name: str
    peak: float
    """Of the fleet's capacity, the busiest hour's load."""
    cv: float = 1.0
    losses: tuple[Loss, ...] = ()
    scaling: Scaling | None = None


def cases(hours: int, replicas: int, rows: int) -> list[Case]:
    noon = hours / 2 * HOUR_S
    plain = [Case(f"{peak:g} at its busiest, CV {cv:g}", peak, cv)
             for peak in (0.6, 0.9, 1.05) for cv in (1.0, 3.0)]  # fmt: skip
    lost, rule = (Loss(1, noon, HOUR_S),), Scaling(1, 2 * replicas, 0.6 * rows, start_s=60.0)
    return [
        *plain,
        Case("0.9, one lost at noon for an hour", 0.9, losses=lost),
        Case("0.9, CV 3, scaled", 0.9, 3.0, scaling=rule),
    ]


def stand_in() -> Fit:
    """An engine like the embedded one on two cores: 48 rows, 25 ms and 1 ms a row."""
    config = EngineConfig()
    facts = ModelFacts("stand-in", "cpu", "cpu", 1, 1, kv_facts(6000, 16, 12e3, 24e3, 48))
    cost = CostCoefficients(((1, 25e6), (48, 70e6), (256, 300e6)), row=1e5, context=2e2)
    named = Fingerprint("evewatch", None, "stand-in", config.kv_format, None, None)
    return Fit(named, asdict(config), facts, 6000, 8192, cost, drift=0.02)


# --- days ---------------------------------------------------------------------------------


def traffic_of(rates: np.ndarray, cv: float) -> SlotTraffic:
    sizes = [PresetSizes(parse_mix(LENGTHS))] * len(rates)
    return SlotTraffic(MONDAY, tuple(rates.tolist()), HOUR_S, GammaGaps(cv), sizes, seed=1)


def twice(case: Case, fit: Fit, replicas: int, hours: int, window_s: float | None) -> str:
    """Rows of the table: the whole day beside its windows."""
    scenario = Scenario(
        case.name, fit, fit.config, replicas, losses=case.losses, scaling=case.scaling
    )
    day = usual(SHAPES[0])[:DAY][np.linspace(0, DAY - 1, hours).astype(int)]
    pace = pace_of(scenario, traffic_of(day, case.cv))
    traffic = traffic_of(day / day.max() * case.peak * replicas * pace.able, case.cv)
    begin = time.process_time()
    whole = figures_of(run_whole(scenario, World(traffic), pace.able), SLO)
    middle = time.process_time()
    asked = Question([traffic] * PLACES, [scenario], window_s=window_s)
    sampling = sampling_of(asked, scenario, pace)
    if sampling is None:
        raise SystemExit("--hours: a day so short is not sampled; give more, or more --replicas")
    parts = [
        figures_of(run_typical(scenario, World(traffic, seed=i), pace, sampling,
                               (i + 0.5) / PLACES), SLO)
        for i in range(PLACES)
    ]  # fmt: skip
    spent = middle - begin, (time.process_time() - middle) / PLACES
    share = sampling.windows * sampling.window_s / HOUR_S
    return "\n".join(_rows(f"{case.name} ({share:.0%})", whole, parts, spent))


def _rows(
    name: str, whole: CourseFigures, parts: list[CourseFigures], spent: tuple[float, float]
) -> Iterator[str]:
    exact, found = answers.totals([whole], TARGET), answers.totals(parts, TARGET)
    pairs = [_pair(exact[m][q], found[m][q], 0)
             for m, q in (("ttft_ms", "p50"), ("ttft_ms", "p99"), ("e2e_ms", "p50"),
                          ("e2e_ms", "p99"))]  # fmt: skip
    pairs += [_pair(exact[m], found[m], digits) for m, digits in
              (("good", 3), ("output_tok_s", 0), ("replica_hours", 1))]  # fmt: skip
    cells = zip(*pairs, strict=True)
    spans = _spans([whole]), _spans(parts), ""
    cpu = f"{spent[0]:.0f} s", f"{spent[1]:.1f} s", ""
    for what, values, span, took in zip(("all", "windows", "off"), cells, spans, cpu, strict=True):
        yield "| " + " | ".join((name, what, *values, span, took)) + " |"
        name = ""


def _pair(exact: answers.Answer, found: answers.Answer, digits: int) -> tuple[str, str, str]:
    a, b = exact["value"], found["value"]
    low, high = found["low"], found["high"]
    assert a is not None and b is not None and low is not None and high is not None
    return (
        f"{a:,.{digits}f}",
        f"{b:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})",
        f"{b / a - 1:+.1%}",
    )


def _spans(courses: Sequence[CourseFigures]) -> str:
    """From the first queue that stands to the last one's end, and the longest delay, in the
    middle of those that have any."""
    told = [course.saturations for course in courses if course.saturations]
    if not told:
        return "never"
    first = np.median([spans[0].from_s for spans in told])
    last = np.median([_until(spans[-1]) for spans in told])
    worst = np.median([max(span.worst_delay_s or np.inf for span in spans) for spans in told])
    hours = np.median([sum(_until(s) - s.from_s for s in spans) for spans in told]) / HOUR_S
    on = f" on {len(told)} of {len(courses)}" if len(courses) > 1 else ""
    return f"{_clock(first)} to {_clock(last)}, {hours:.1f} h in all, up to {worst:,.0f} s{on}"


def _until(span: Saturation) -> float:
    return DAY * HOUR_S if span.until_s is None else span.until_s


def _clock(seconds: float) -> str:
    return f"{MONDAY + timedelta(seconds=seconds):%H:%M}"


def days(fit: Fit, hours: int, replicas: int, window_s: float | None) -> Iterator[str]:
    heads = ("day (simulated)", "", "TTFT P50, ms", "P99", "E2E P50", "P99", "in the objective",
             "tok/s", "replica-hours", "saturates", "CPU")  # fmt: skip
    yield "| " + " | ".join(heads) + " |"
    yield "|---" * len(heads) + "|"
    asked = cases(hours, replicas, fit.config.max_batch)
    job = partial(twice, fit=fit, replicas=replicas, hours=hours, window_s=window_s)
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        yield from pool.map(job, asked)


# --- a week -------------------------------------------------------------------------------


def outlook_of(peak: float) -> Outlook:
    """Of the week that follows four; `peak`: requests/s of the busiest hour of them."""
    counts = weeks_of(SHAPES[0], 4, 1, False)
    counts *= peak * HOUR_S / counts.max()
    past = History("four weeks", MONDAY, HOUR_S, tuple(counts.round().tolist()))
    return make_outlook(past, days=7, sizes=PresetSizes(parse_mix(LENGTHS)))


def a_week(fit: Fit, replicas: int) -> Iterator[str]:
    scenario = Scenario("week", fit, fit.config, replicas)
    pace = pace_of(scenario, traffic_of(np.full(1, 100.0), 1.0))
    outlook = outlook_of(WEEK_PEAK * replicas * pace.able)
    busiest = float(np.argmax(outlook.rates)) * HOUR_S
    lost = Scenario("week", fit, fit.config, replicas, losses=(Loss(1, busiest, HOUR_S),))
    question = Question(outlook.plausible(PLACES, 0), [lost], SLO, TARGET)
    begin, cpu = time.monotonic(), os.times()
    found = run_forecast(question, lambda done, of: print(f"{done} of {of}", flush=True))
    took, now = time.monotonic() - begin, os.times()
    report = report_of(question, found, outlook)
    totals, smallest = report["scenarios"][0]["totals"], report["smallest"]
    yield (
        f"A week ({WEEK} h, {totals['offered']['value']:,.0f} requests) on {replicas} replicas of "
        f"{pace.able:.2f} requests/s, {PLACES} plausible courses, one replica lost at the busiest "
        f"hour, and the smallest fleet of every hour: {took / 60:.1f} minutes on "
        f"{len(os.sched_getaffinity(0))} cores, {(sum(now[:4]) - sum(cpu[:4])) / 60:.1f} minutes "
        f"of CPU time. {smallest['replica_hours']:,.0f} replica-hours are enough, "
        f"{smallest['constant_replica_hours']:,.0f} with as many at all times. It said:"
    )
    yield ""
    yield from (f"- {sentence}" for sentence in report["sentences"])


# --- the command --------------------------------------------------------------------------


def write(path: Path, part: str, text: str) -> None:
    """Between the marks of a page."""
    begin, end = MARKS[part]
    before, _, rest = path.read_text("utf-8").partition(begin)
    path.write_text(f"{before}{begin}\n\n{text}\n\n{end}{rest.partition(end)[2]}", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=tuple(MARKS))
    parser.add_argument("--fit", type=Path)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--replicas", type=int)
    parser.add_argument("--window", type=float, help="seconds of each hour that are simulated")
    parser.add_argument("--out", type=Path, help="a page with marks, like docs/forecast.md")
    told = parser.parse_args()
    fit = stand_in() if told.fit is None else load(told.fit)
    lines = []
    for line in (
        days(fit, told.hours, told.replicas or 4, told.window) if told.part == "days"
        else a_week(fit, told.replicas or 20)
    ):  # fmt: skip
        print(line, flush=True)
        lines.append(line)
    if told.out is not None:
        write(told.out, told.part, "\n".join(lines))


if __name__ == "__main__":
    main()
