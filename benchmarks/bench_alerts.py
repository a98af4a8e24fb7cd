"""Planted breaches, and how long after cause and cure each is told, in virtual time.

    python -m benchmarks.bench_alerts [--day] [--share 0.99] [--window 8d] [--rate 4]

A metrics page of made traffic is scraped once a second by the engine that `watch` uses, and looked
at by the rules below and those of the objectives. Each breach begins after 20 min of healthy
traffic, lasts ten, and is watched for 20 more. `--day` lets 24 healthy hours pass instead (a look
every 5 s): not one alert.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from benchmarks.breaches import Traffic
from engine.observing.objectives import Objective
from engine.remote import attach
from playbooks.alerts.burn import with_burn_rules
from playbooks.alerts.file import AlertsFile, load
from playbooks.alerts.watchkeeper import Watchkeeper
from playbooks.objectives.book import Book
from playbooks.objectives.file import Objectives
from playbooks.steps.durations import seconds

RULES = """
[[rules]]
name = "queue"
field = "queue.waiting"
above = 50
clears = 30
[[rules]]
name = "preempting"
field = "batch.preemptions_total"
above = 20
clears = 5
change = "1m"
[[rules]]
name = "slow p99"
field = "latency.ttft_ms.p99"
above = 1000
[[rules]]
name = "gone"
field = "source.unreachable"
above = 0
[[rules]]
name = "short of pages"
field = "causes.kv_bound"
above = 0
"""
BEGAN = 1_798_070_400.0
HEALTHY_S, BREACH_S, AFTER_S = 1200.0, 600.0, 1200.0
Told = list[tuple[float, str, str]]


class Watch:
    """The made engine, watched; `answers` is what its address gives."""

    def __init__(self, alerts: AlertsFile, promised: Objectives, rate: float, home: Path) -> None:
        self.traffic, self.now, self.told = (
            Traffic(rate=rate),
            BEGAN,
            list[tuple[float, str, str]](),
        )
        self.answers: Callable[[], httpx.Response] = self.page
        self.engine = attach(
            "http://made:8000", objectives=promised.each, clock=lambda: self.now,
            monotonic=lambda: self.now,
            transport=httpx.MockTransport(self._served),
        )  # fmt: skip
        self.keeper = Watchkeeper(
            with_burn_rules(alerts, promised), (), lambda: {"made": self.engine.snapshot()},
            lambda message: self.told.append((self.now - BEGAN, message.rule, message.state)),
            book=Book(promised, home / "objectives.json", resumes=False),
        )  # fmt: skip

    def _served(self, asked: httpx.Request) -> httpx.Response:
        return self.answers() if asked.url.path == "/metrics" else httpx.Response(404)

    def page(self) -> httpx.Response:
        return httpx.Response(200, content=self.traffic.page())

    def live(self, seconds: float, step_s: float = 1.0) -> Told:
        """What was told in that time."""
        before = len(self.told)
        for _ in range(round(seconds / step_s)):
            self.now += step_s
            self.traffic.live(step_s)
            self.engine.poll()
            self.keeper.look(self.now)
        return self.told[before:]


def refused() -> httpx.Response:
    raise httpx.ConnectError("Connection refused")


def used_up(watch: Watch) -> None:
    watch.traffic.kv_usage, watch.traffic.waiting = 0.99, 9


BREACHES: dict[str, Callable[[Watch], None]] = {
    "a queue of 90": lambda w: setattr(w.traffic, "waiting", 90),
    "a preemption a second": lambda w: setattr(w.traffic, "preemptions_a_s", 1.0),
    "80 % of first tokens late": lambda w: setattr(w.traffic, "slow", 0.8),
    "20 % of first tokens late": lambda w: setattr(w.traffic, "slow", 0.2),
    "all requests fail": lambda w: setattr(w.traffic, "failing", 1.0),
    "pages used up": used_up,
    "the target refuses": lambda w: setattr(w, "answers", refused),
    "the target's page is HTML": lambda w: setattr(
        w, "answers", lambda: httpx.Response(200, content=b"<html>busy</html>")
    ),
}
FLAPS = "the target answers every third time"


def cured(watch: Watch) -> None:
    watch.traffic.slow, watch.traffic.failing, watch.traffic.waiting = 0.0005, 0.0, 2
    watch.traffic.kv_usage, watch.traffic.preemptions_a_s = 0.4, 0.01
    watch.answers = watch.page


def plant(watch: Watch, name: str) -> list[str]:
    """A line for each rule that told something: how long after cause and cure."""
    assert watch.live(HEALTHY_S) == [], "an alert before anything was planted"
    BREACHES[name](watch)
    cause = watch.now - BEGAN
    told = watch.live(BREACH_S)
    cured(watch)
    cure = watch.now - BEGAN
    told += watch.live(AFTER_S)
    lines = []
    for rule in dict.fromkeys(rule for _, rule, _ in told):
        onsets = [at - cause for at, r, state in told if r == rule and state == "firing"]
        ends = [at - cure for at, r, state in told if r == rule and state == "recovered"]
        times = " ".join(f"{at:6.0f}" for at in onsets), " ".join(f"{at:6.0f}" for at in ends)
        lines.append(f"  {name:28} {rule:26} {times[0]:>8} s {times[1]:>8} s")
    return lines or [f"  {name:28} nothing was told"]


def flapping(watch: Watch) -> str:
    watch.live(HEALTHY_S)
    turn = iter(range(10**9))
    watch.answers = lambda: watch.page() if next(turn) % 3 == 0 else refused()
    told = watch.live(BREACH_S)
    cured(watch)
    told += watch.live(AFTER_S)
    return f"  {FLAPS:28} {', '.join(f'{rule} {state}' for _, rule, state in told) or 'nothing'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--day", action="store_true", help="24 healthy hours instead")
    parser.add_argument("--share", type=float, default=0.99)
    parser.add_argument("--window", default="8d")
    parser.add_argument("--rate", type=float, default=4.0, help="requests a second")
    options = parser.parse_args()
    each = (Objective("ttft", options.share, 0.5), Objective("availability", options.share),
            Objective("reachable", options.share))  # fmt: skip
    promised = Objectives(each, seconds(options.window))
    with tempfile.TemporaryDirectory() as folder:
        home, spent = Path(folder), time.process_time()
        file = home / "alerts.toml"
        file.write_text(RULES)
        os.environ["EVEWATCH_HOME"] = folder
        if options.day:
            told = Watch(load(file, None), promised, options.rate, home).live(86_400.0, 5.0)
            print(f"24 h healthy, a look every 5 s: {len(told)} alerts {told or ''}")
        else:
            print(f"{options.rate:g} requests/s, {options.share:.3%} over {options.window}")
            print(f"  {'planted':28} {'rule':26} {'onset':>10} {'end':>10}")
            for name in BREACHES:
                watch = Watch(load(file, None), promised, options.rate, home)
                print("\n".join(plant(watch, name)), flush=True)
            print(flapping(Watch(load(file, None), promised, options.rate, home)))
        print(f"{time.process_time() - spent:.0f} s of CPU")


if __name__ == "__main__":
    main()
