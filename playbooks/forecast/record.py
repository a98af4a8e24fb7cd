"""A forecast as a record of the optimization log: `forecast score` will hold it against what
came."""

from __future__ import annotations

from typing import Any

from playbooks.optlog.record import Change, LogEffect, Record

Report = dict[str, Any]
WHY = (
    "Before the days when nobody looks, the coming traffic goes through the engine's own scheduler "
    "in virtual time, so that it is known whether what there is holds the objective."
)
METRICS = (("ttft_ms", "p99"), ("tpot_ms", "p99"), ("e2e_ms", "p99"))


def of_forecast(report: Report, artifacts: tuple[str, ...] = ()) -> list[Record]:
    """One record; the scenarios beside the first are its effects."""
    first, others = report["scenarios"][0], report["scenarios"][1:]
    smallest = report["smallest"]
    enough = smallest["whole"] if smallest else None
    what: tuple[Change, ...] = ()
    if report["verdict"] != "holds" and enough is not None and enough != first["replicas"]:
        what = (Change("replicas", first["replicas"], enough),)
    return [
        Record(
            title=f"Forecast from {report['start'][:16]}: {report['sentences'][0]}",
            what=what,
            why=WHY,
            how=_how(report, first),
            effect=tuple(_effects(report, first, others)),
            problems=(*report["sentences"], *report["warnings"]),
            rollback=f"Go back to {first['replicas']} replicas." if what else "",
            claim="simulated",
            environment={"fit": first["fit"]},
            artifacts=artifacts,
        )
    ]


def _how(report: Report, first: Report) -> dict[str, Any]:
    return {
        "command": "forecast run",
        "period": f"{report['seconds'] / 3600:g} h from {report['start']}",
        "traffic": {key: report["traffic"].get(key) for key in ("level", "bursts", "lengths")},
        "plausible days": report["days"],
        "seed": report["seed"],
        "objective": report["objective"],
        "replicas": first["replicas"],
        "router": first["router"],
        "settings": first["settings"],
        "assumed": report["assumptions"],
    }


def _effects(report: Report, first: Report, others: list[Report]) -> list[LogEffect]:
    """Of each what-if against what there is; without one, what there is."""
    found = []
    arms: list[Report | None] = [*others] or [None]
    for other in arms:
        for name, quantile in METRICS:
            before = first["totals"][name][quantile]["value"]
            after = None if other is None else other["totals"][name][quantile]["value"]
            label = f"{quantile}_{name}" + ("" if other is None else f", {other['name']}")
            found.append(LogEffect(label, before, after, report["days"]))
        good = first["totals"]["good"]["value"]
        shown = first if other is None else other
        label = "good_share" + ("" if other is None else f", {other['name']}")
        after = None if other is None else other["totals"]["good"]["value"]
        found.append(
            LogEffect(label, good, after, report["days"], verdict=VERDICTS[shown["verdict"]])
        )
    return found


VERDICTS = {"holds": "pass", "fails": "fail", "uncertain": "inconclusive"}
