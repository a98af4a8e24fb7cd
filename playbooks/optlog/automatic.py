"""Records that the measuring commands write by themselves, from their reports.

A comparison gets one record a step, so that each change has its own reason and its own effect,
and one of the whole where it has several steps. What the report leaves open is a problem of the
record: effects that an interval does not separate from zero, points that do not count, numbers
that were not measured. A decision is a human's: records say `hold`, except where a quality gate
fails, which rejects the format.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from playbooks.optlog.provenance import provenance_of
from playbooks.optlog.record import Change, LogEffect, Record

Report = dict[str, Any]
LIVE = {
    "dynamic_batch": "the cap can be fixed while it runs",
    "max_batch": "a lower cap can be set while it runs",
}
"""Settings that need no restart to be undone."""
SUFFIXES = {"tok/s": "_tok_s", "ms": "_ms", "B": "_bytes"}
QUALITY_WHY = (
    "A smaller KV format must not change what the model says; perplexity alone does not show it, "
    "so the answers, the distributions and the form are held against the baseline's."
)
SWEEP_WHY = (
    "Throughput stops growing with the batch while latency goes on: the cap belongs a little "
    "before that knee."
)


# --- compare --------------------------------------------------------------------------------


def of_compare(report: Report, artifacts: tuple[str, ...] = ()) -> list[Record]:
    arms = {arm["name"]: arm for arm in report["arms"]}
    steps = []
    for number, after in enumerate(report["arms"][1:], 1):
        rows = [row for row in report["effects"] if row["to"] == after["name"]]
        before = arms[rows[0]["from"]]
        steps.append(_step(report, number, before, after, rows, artifacts))
    return [*steps, _whole(report, artifacts)] if len(steps) > 1 else steps


def _step(
    report: Report, number: int, before: Report, after: Report, rows: list[Report],
    artifacts: tuple[str, ...],
) -> Record:  # fmt: skip
    what = _changes(before["config"], after["config"])
    step = {"step": f"{number:d} of {len(report['arms']) - 1:d}", "from": before["name"],
            "to": after["name"]}  # fmt: skip
    if after["together"]:
        step["one change, because"] = after["together"]
    step["limit before"] = _limit(before)
    step["limit after"] = _limit(after)
    return Record(
        title=f"{_name(report)}: {before['name']} → {after['name']}",
        what=what,
        why=" ".join(after["why"].split()),
        how=step | _work(report),
        effect=(*map(_effect, rows), *_states(before, after)),
        problems=(*_open_effects(rows), *_arm_problems(after), *_run_problems(report)),
        rollback=_rollback(what),
        environment=report["environment"] | provenance_of(after["config"]),
        artifacts=artifacts,
    )


def _whole(report: Report, artifacts: tuple[str, ...]) -> Record:
    first, last = report["arms"][0], report["arms"][-1]
    what, goals = _changes(first["config"], last["config"]), report["goals"]
    steps = " ".join(f"{arm['name']}: {' '.join(arm['why'].split())}" for arm in report["arms"][1:]
                      if arm["why"])  # fmt: skip
    missed = [
        f"goal {goal['metric']} ({_goal(goal)}): {goal['verdict']}, {goal['why']}"
        for goal in goals
        if goal["verdict"] != "pass"
    ]
    how = {"step": "the whole", "from": first["name"], "to": last["name"]} | _work(report)
    if report["regime"]:
        how["regime"] = " ".join(report["regime"].split())
    if goals:
        how["goals"] = [
            {"metric": g["metric"], "promised": _goal(g), "verdict": g["verdict"], "got": g["why"]}
            for g in goals
        ]
    how["findings"] = list(report["findings"])
    return Record(
        title=f"{_name(report)}: the whole, {first['name']} → {last['name']}",
        what=what,
        why=steps or f"All changes together: {report['title']}",
        how=how,
        effect=(*map(_effect, report["overall"]), *_states(first, last)),
        problems=(*missed, *_open_effects(report["overall"]), *_run_problems(report)),
        rollback=_rollback(what),
        environment=report["environment"] | provenance_of(last["config"]),
        artifacts=artifacts,
    )


def _name(report: Report) -> str:
    return report["title"] if report["name"] == "compare" else report["name"]


def _changes(before: Report, after: Report) -> tuple[Change, ...]:
    """Every setting in which the two arms really differ."""
    keys = [key for key in after if before.get(key) != after[key]]
    return tuple(Change(key, before.get(key), after[key]) for key in keys)


def _work(report: Report) -> dict[str, Any]:
    work = report["work"]
    rate = work["rate_requests_s"]
    return {
        "command": "compare",
        "experiment": report["name"],
        "model": report["model"],
        "lengths": work["lengths"],
        "throughput": f"closed batches of {work['batch_requests']} requests",
        "latency": f"{work['rate_requests']} requests at {rate:.3g}/s (open loop) a repeat"
        if rate is not None
        else "of the closed batches",
        "repeats": report["repeats"],
        "seed": report["seed"],
        "scale": report["scale"],
        "order": "arms take turns; intervals are of pairs",
    }


def _effect(row: Report) -> LogEffect:
    name = row["metric"]
    suffix = "" if "bytes" in name and row["unit"] == "B" else SUFFIXES.get(row["unit"], "")
    return LogEffect(
        name + suffix, row["before"], row["after"], row["n"], row["low"], row["high"],
        row["verdict"],
    )  # fmt: skip


def _states(before: Report, after: Report) -> tuple[LogEffect, ...]:
    bound = LogEffect("bound_by", before["bound_by"], after["bound_by"])
    if after["quality"] in (None, "reference"):
        return (bound,)
    return (
        bound,
        LogEffect("quality", before["quality"], after["quality"], verdict=after["quality"]),
    )


def _limit(arm: Report) -> str:
    why = next((row["why"] for row in arm["bound"] if row["by"] == arm["bound_by"]), "")
    return f"bound by {arm['bound_by']}: {why}" if why else f"bound by {arm['bound_by']}"


def _open_effects(rows: list[Report]) -> list[str]:
    problems = []
    for row in rows:
        if row["change"] is None:
            problems.append(f"{row['title']}: no interval, n is too small")
        elif row["verdict"] == "inconclusive":
            span = f"{row['low']:+.1%} … {row['high']:+.1%}"
            problems.append(f"{row['title']}: inconclusive, {span} does not exclude zero")
        elif row["verdict"] == "worse":
            problems.append(f"{row['title']} got worse: {row['low']:+.1%} … {row['high']:+.1%}")
    return problems


def _rounding(arm: Report) -> str:
    """ "fp16", or "int8_channel, compute auto": what an arm's quality may suffer from."""
    config, plain = arm["config"], {"compute": "f32", "weights": "file"}
    others = [f"{name} {config[name]}" for name in plain if config[name] != plain[name]]
    return ", ".join([config["kv_format"], *others])


def _arm_problems(arm: Report) -> list[str]:
    problems = []
    if arm["preemptions"]:
        problems.append(f"{arm['preemptions']} preemptions: the pool was short while it ran")
    if arm["quality"] in ("warn", "fail", "inconclusive"):
        problems.append(f"quality of {_rounding(arm)} against fp16: {arm['quality']}")
    if arm["quality"] is None and _rounding(arm) != "fp16":
        problems.append(f"quality of {_rounding(arm)} was not judged in this run")
    limits = dict.fromkeys(row["by"] for row in arm["bound"])
    if len(limits) > 1:
        problems.append(f"repeats disagree on what bound it: {', '.join(limits)}")
    return problems


def _run_problems(report: Report) -> list[str]:
    if not report["quick"]:
        return []
    return [f"a quick run (scale {report['scale']:g}): a first look, no result to decide on"]


def _goal(goal: Report) -> str:
    if goal["at_least"] is not None:
        return f"at least {goal['at_least']:g} × before"
    return f"at most {goal['at_most']:g} × before"


def _rollback(what: Sequence[Change]) -> str:
    if not what:
        return ""
    back = ", ".join(f"{c.key} = {_setting(c.before)}" for c in what)
    live = [LIVE[c.key] for c in what if c.key in LIVE]
    how = "; ".join(live) if len(live) == len(what) else "restart the engine with them"
    return f"Set {back}; {how}."


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "unset" if value is None else str(value)


# --- sweep ----------------------------------------------------------------------------------


def of_sweep(
    report: Report, artifacts: tuple[str, ...] = (), cap: int | None = None
) -> list[Record]:
    """`cap`: the one that was configured, which the recommended one would replace."""
    points, knee, best = report["points"], report["knee"], report["recommended_cap"]
    sizes = f"{points[0]['batch']} … {points[-1]['batch']}"
    found = f"knee {knee}, cap {best or 'none'}" if knee else "no knee found"
    what = (Change("max_batch", cap, best),) if best else ()
    counting = [point for point in points if point["counts"]]
    return [
        Record(
            title=f"Batch sweep {sizes}: {found}",
            what=what,
            why=SWEEP_WHY,
            how=_sweep_work(report),
            effect=_sweep_effects(counting, knee) if knee else (),
            problems=(
                *(report["reasons"] if report["abstained"] else ()),
                *_no_cap(report),
                *(f"batch {p['batch']} does not count: {p['doubts']}" for p in points
                  if not p["counts"]),
            ),
            rollback=_rollback(what) if cap else "",
            environment=report["environment"] | provenance_of(report["config"]),
            artifacts=artifacts,
        )
    ]  # fmt: skip


def _no_cap(report: Report) -> list[str]:
    has_knee_only = report["knee"] is not None and report["recommended_cap"] is None
    return list(report["reasons"]) if has_knee_only else []


def _sweep_work(report: Report) -> dict[str, Any]:
    work = report["work"]
    return {
        "command": "sweep",
        "model": report["model"],
        "lengths": work["lengths"],
        "repeats": work["repeats"],
        "seed": work["seed"],
        "p99 objective": f"{work['p99_of']} ≤ {work['p99_objective_ms']:g} ms"
        if work["p99_objective_ms"] is not None
        else "none",
        "reasons": list(report["reasons"]),
        "points": [
            {
                "batch": p["batch"],
                "output_tok_s": p["output_tok_s"],
                "e2e_p99_ms": p["latency"]["e2e_ms"]["p99"],
                "bound_by": p["bound_by"],
                "little_error": p["little_error"],
                "counts": p["counts"],
            }
            for p in report["points"]
        ],
    }


def _sweep_effects(points: list[Report], knee: int) -> tuple[LogEffect, ...]:
    """From the largest point measured to the knee: what stopping earlier costs and gives."""
    by_size = {point["batch"]: point for point in points}
    last, at = points[-1], by_size[knee]
    n = len(at["repeats"])
    effects = [
        LogEffect(f"output_tok_s, batch {last['batch']} → {knee}", last["output_tok_s"],
               at["output_tok_s"], n),
    ]  # fmt: skip
    for metric in ("e2e_ms", "ttft_ms", "tpot_ms"):
        before, after = (point["latency"][metric] for point in (last, at))
        name = f"p99_{metric}, batch {last['batch']} → {knee}"
        effects.append(LogEffect(name, before["p99"], after["p99"], after["n"]))
    return tuple(effects)


# --- quality --------------------------------------------------------------------------------


def of_quality(report: Report, artifacts: tuple[str, ...] = ()) -> list[Record]:
    what = tuple(Change(c["setting"], c["baseline"], c["candidate"]) for c in report["changes"])
    what = what or (Change("kv_format", report["baseline"], report["format"]),)
    verdict = report["verdict"]
    return [
        Record(
            title=f"Quality, {report['candidate']} against {report['baseline']}: {verdict}",
            what=what,
            why=QUALITY_WHY,
            how={
                "command": "quality",
                "model": report["model"],
                "cases": report["cases"],
                "positions": report["positions"],
                "quick": report["quick"],
                "controls": [
                    {"control": name, "expected": c["expected"], "verdict": c["verdict"]}
                    for name, c in report["controls"].items()
                ],
            },
            effect=tuple(
                LogEffect(g["metric"], None, g["value"], report["positions"], verdict=g["verdict"])
                for g in report["gates"]
            ),
            problems=_quality_problems(report),
            decision="reject" if verdict == "fail" else "hold",
            rollback=_rollback(what),
            environment=provenance_of(report["config"]),
            artifacts=artifacts,
        )
    ]


def _quality_problems(report: Report) -> tuple[str, ...]:
    """Reasons, controls that misbehave, suspects, and where the answers part."""
    problems = list(report["reasons"])
    problems += [
        f"the control {name} gave {c['verdict']}, expected {c['expected']}: the check itself is "
        "in doubt"
        for name, c in report["controls"].items()
        if not c["ok"]
    ]
    problems += [
        f"suspect: layer {s['layer']}, KV head {s['head']}, channel {s['channel']}, "
        f"{s['ratio']:.1f} × the head's median, {s['why']}"
        for s in report["suspects"]
    ]
    if report["verdict"] in ("warn", "fail"):
        problems += [
            f"case {c['case']} ({c['category']}): the answers part at token {c['first_divergence']}"
            for c in report["worst"]
            if c["first_divergence"] is not None
        ]
    return tuple(problems)
